"""Code of the attention kernels of which some mutants show nothing, recognised by what it does.

Arguments that hold wherever the compiler puts the code, unlike those of `arguments`.
"""

from __future__ import annotations

from benchmarks.checker_mutation import registers as regs
from benchmarks.checker_mutation.code import Instruction
from benchmarks.checker_mutation.generate import Mutant
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.makers import sources
from benchmarks.checker_mutation.uniform import Taken

_LOG_OF_0 = (
    "the additional lanes take the logarithm of a sum of 0: minus infinity, which lanes that skip "
    "it hold already and which no reference of a row without keys changes"
)
_STORED_BEFORE = (
    "the disabled lanes have rows whose sum is 0, for which the first attempt has stored minus "
    "infinity, as this one would; after this store the mask of the rows is restored"
)
_ALL_RENEWED = (
    "the value is the maximum of flags that are 1 in all lanes, since no sum of probabilities is "
    "below -1: it is 1, whichever lane it comes from"
)
_MOST_OPERANDS = 4  # of a search through the makers of a value


def argument(code: KernelCode, mutant: Mutant) -> str:
    """Why nothing can be seen of a mutant; "" if nothing of this file says so."""
    inst = code.at(mutant.pc)
    if mutant.kind == "EXEC":
        if _guards_a_logarithm(code, inst):
            return _LOG_OF_0
        if inst.text.startswith("s_or_b64 exec, exec,") and inst.pc not in _first_attempt(code):
            makers = sources(code, inst.pc, min(regs.registers(inst.operands[2])))
            again = all(_guards_a_logarithm(code, code.at(pc)) for pc in makers)
            return _STORED_BEFORE if makers and again else ""
        return ""
    if mutant.kind == "LDS offset" and inst.mnemonic == "ds_bpermute_b32":
        (data,) = regs.registers(inst.operands[2])
        if _is_one(code, inst.pc, data):
            return _ALL_RENEWED
    return ""


def _begins_again(code: KernelCode, inst: Instruction) -> bool:
    """Whether this is the barrier behind which a tile is done again."""
    if inst.mnemonic != "s_barrier":
        return False
    following = code.at(inst.end)
    return following.mnemonic.startswith("s_load_dwordx") and following.operands[1:] == (
        "s[0:1]",
        "0x0",
    )


def is_in_a_loop(code: KernelCode, pc: int) -> bool:
    """Whether an instruction is met again before a tile is done again."""
    seen: set[int] = set()
    todo = list(code.successors[pc])
    while todo:
        at = todo.pop()
        if at == pc:
            return True
        if at not in seen and not _begins_again(code, code.at(at)):
            seen.add(at)
            todo += code.successors[at]
    return False


def _first_attempt(code: KernelCode) -> set[int]:
    """Addresses that are reached without doing a tile again."""
    seen: set[int] = set()
    todo = [code.entry]
    while todo:
        pc = todo.pop()
        if pc not in seen and not _begins_again(code, code.at(pc)):
            seen.add(pc)
            todo += code.successors[pc]
    return seen


def _guards_a_logarithm(code: KernelCode, inst: Instruction) -> bool:
    """`x = -inf; if (sum != 0) x = log(sum) ...` for lanes."""
    if "saveexec" not in inst.mnemonic:
        return False
    following = code.at(inst.end)
    if following.mnemonic != "v_log_f32_e32":
        return False
    result, total = following.operands
    mask = min(regs.registers(inst.operands[1]))
    makers = [code.at(pc) for pc in sources(code, inst.pc, mask)]
    values = [code.at(pc) for pc in sources(code, inst.pc, min(regs.registers(result)))]
    return (
        len(makers) == len(values) == 1
        and makers[0].mnemonic.startswith("v_cmp_neq_f32")
        and makers[0].operands[1:] == ("0", total)
        and values[0].text == f"v_mov_b32_e32 {result}, 0xff800000"
    )


def _is_one(code: KernelCode, pc: int, register: int, depth: int = _MOST_OPERANDS) -> bool:
    """Whether a VGPR is 1 in all lanes: `x < -1 ? 0 : 1`, or the greatest of such numbers."""
    makers = [code.at(maker) for maker in sources(code, pc, register)]
    if len(makers) != 1 or depth == 0:
        return False
    (maker,) = makers
    if maker.mnemonic == "v_cndmask_b32_e64" and maker.operands[1:3] == ("1.0", "0"):
        mask = min(regs.registers(maker.operands[3]))
        compared = [code.at(at) for at in sources(code, maker.pc, mask)]
        return len(compared) == 1 and (
            compared[0].mnemonic.startswith("v_cmp_gt_f32") and compared[0].operands[1] == "-1.0"
        )
    wanted: tuple[str, ...] = ()
    if maker.mnemonic == "v_max_f32_e32":
        wanted = maker.operands[1:]
    elif maker.mnemonic == "ds_bpermute_b32":
        wanted = maker.operands[2:3]
    return bool(wanted) and all(
        len(read := regs.registers(operand)) == 1 and _is_one(code, maker.pc, min(read), depth - 1)
        for operand in wanted
    )


def never_below(code: KernelCode) -> Taken:
    """Branches that are taken as no sum of probabilities is below -1.

    `s_cbranch_scc0` behind `s_cmp_eq_u64` of 0 and the lanes that are not less than -1.
    """
    found: dict[int, bool] = {}
    for inst in code.instructions:
        if not inst.mnemonic.startswith("v_cmp_nlt_f32_e64") or inst.pc not in code.reachable:
            continue
        limit = regs.registers(inst.operands[2])
        made = [code.at(pc).text for pc in sources(code, inst.pc, min(limit))] if limit else []
        if len(made) == 1 and made[0].startswith("s_mov_b32") and made[0].endswith(" -1.0"):
            branch = _branch_on_none(code, inst)
            if branch is not None:
                found[branch.pc] = True
    return found


def _branch_on_none(code: KernelCode, compare: Instruction) -> Instruction | None:
    """The branch that is taken unless the result of a comparison has no lane."""
    tested, lanes = False, regs.registers(compare.operands[0])
    for inst in code.instructions[code.index[compare.pc] + 1 :]:
        if inst.text == f"s_cmp_eq_u64 {compare.operands[0]}, 0":
            tested = True
        elif inst.is_branch:
            return inst if tested and inst.mnemonic == "s_cbranch_scc0" else None
        elif regs.use(inst).writes & ({regs.SCC} if tested else lanes):
            return None
    return None

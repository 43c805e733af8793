// SOP1 and SOPP: scalar ALU with one source, and program control.
#include <bit>
#include <string>

#include "core/wave.h"
#include "isa/control.h"
#include "isa/scalar.h"
#include "isa/tables.h"

namespace vdev {
namespace {

using enum FlowKind;

template <class T>
constexpr Scc<T> logic(T x) {
  return {x, x != 0};
}
constexpr i32 kNotFound = -1;

template <class T>
constexpr T reverse(T x) {
  T r = 0;
  for (u32 i = 0; i < sizeof(T) * 8; ++i) r |= (x >> i & 1) << (sizeof(T) * 8 - 1 - i);
  return r;
}
template <class T>
constexpr i32 first_one(T x) {
  return x ? std::countr_zero(x) : kNotFound;
}
template <class T>
constexpr i32 leading(T x) {
  return x ? std::countl_zero(x) : kNotFound;
}
// Position of the first bit that differs from the sign, counted from the top; -1: there is none.
template <class T>
constexpr i32 sign_run(T x) {
  const T differing = x >> (sizeof(T) * 8 - 1) ? static_cast<T>(~x) : x;
  return leading(differing);
}
template <class T>
constexpr T whole_quads(T x) {
  T r = 0;
  for (u32 i = 0; i < sizeof(T) * 8; i += 4)
    if (x >> i & 15) r |= T{15} << i;
  return r;
}
template <class T>
constexpr T quad_mask(T x) {
  T r = 0;
  for (u32 i = 0; i < sizeof(T) * 8; i += 4)
    if (x >> i & 15) r |= T{1} << (i / 4);
  return r;
}

// Old EXEC goes to the destination, the combination to EXEC.
template <u64 (*Combine)(u64 source, u64 exec)>
void saveexec(Wave& w, const Inst& in) {
  const u64 source = read_scalar64(w, in.src[0]), exec = w.exec();
  const u64 result = Combine(source, exec);
  write_scalar64(w, in.dst, exec);
  w.set_pair(kExec, result);
  w.scc = result != 0;
}
// The combination goes to both.
template <u64 (*Combine)(u64 source, u64 exec)>
void wrexec(Wave& w, const Inst& in) {
  const u64 result = Combine(read_scalar64(w, in.src[0]), w.exec());
  write_scalar64(w, in.dst, result);
  w.set_pair(kExec, result);
  w.scc = result != 0;
}
constexpr u32 kExecEffects = kReadsExec | kWritesExec | kWritesScc;
#define SAVEEXEC(OP, NAME, EXPR, FLOW)                                                             \
  scalar_row(Format::kSop1, OP, NAME "_saveexec_b64", saveexec<[](u64 s, u64 e) { return EXPR; }>, \
             Type::kB64, {Type::kB64}, kExecEffects)                                               \
      .flows(FLOW)
#define WREXEC(OP, NAME, EXPR, FLOW)                                                           \
  scalar_row(Format::kSop1, OP, NAME "_wrexec_b64", wrexec<[](u64 s, u64 e) { return EXPR; }>, \
             Type::kB64, {Type::kB64}, kExecEffects)                                           \
      .with(Trait::kNewExec)                                                                   \
      .flows(FLOW)

// M0 moves the source (rels) or the destination (reld).
Operand moved(const Wave& w, Operand o) {
  const u64 index = u64{o.index} + w.s[kM0];
  if (index + o.dwords > w.num_sgprs)
    raise(FaultKind::kIllegalInstruction, "M0 moves an SGPR operand to s" + std::to_string(index) +
                                              ", beyond the " + std::to_string(w.num_sgprs) +
                                              " that the wave has");
  o.index = static_cast<u16>(index);
  return o;
}
void movrels32(Wave& w, const Inst& in) {
  write_scalar(w, in.dst, read_scalar(w, moved(w, in.src[0])));
}
void movrels64(Wave& w, const Inst& in) {
  write_scalar64(w, in.dst, read_scalar64(w, moved(w, in.src[0])));
}
void movreld32(Wave& w, const Inst& in) {
  write_scalar(w, moved(w, in.dst), read_scalar(w, in.src[0]));
}
void movreld64(Wave& w, const Inst& in) {
  write_scalar64(w, moved(w, in.dst), read_scalar64(w, in.src[0]));
}

#define BOTH(OP, NAME, FN, FLOW)                                              \
  salu<[](u32 a) { return FN; }>(Format::kSop1, OP, NAME "_b32").flows(FLOW), \
      salu<[](u64 a) { return FN; }>(Format::kSop1, OP + 1, NAME "_b64").flows(FLOW)

// clang-format off
constexpr Row kSop1[] = {
    BOTH(0x00, "s_mov", a, kMove),
    salu<[](u32 a, SccIn c) { return Maybe<u32>{a, c.value}; }>(Format::kSop1, 0x02, "s_cmov_b32").flows(kKeep),
    salu<[](u64 a, SccIn c) { return Maybe<u64>{a, c.value}; }>(Format::kSop1, 0x03, "s_cmov_b64").flows(kKeep),
    BOTH(0x04, "s_not", logic<decltype(a)>(~a), kUnion),
    BOTH(0x06, "s_wqm", logic(whole_quads(a)), kAny),
    BOTH(0x08, "s_brev", reverse(a), kMove),
    BOTH(0x0a, "s_bcnt0_i32", logic<i32>(std::popcount(static_cast<decltype(a)>(~a))), kAny),
    BOTH(0x0c, "s_bcnt1_i32", logic<i32>(std::popcount(a)), kAny),
    BOTH(0x0e, "s_ff0_i32", first_one(static_cast<decltype(a)>(~a)), kAny),
    BOTH(0x10, "s_ff1_i32", first_one(a), kAny),
    BOTH(0x12, "s_flbit_i32", leading(a), kAny),
    salu<[](u32 a) { return sign_run(a); }>(Format::kSop1, 0x14, "s_flbit_i32"),
    salu<[](u64 a) { return sign_run(a); }>(Format::kSop1, 0x15, "s_flbit_i32_i64"),
    salu<[](u32 a) { return i32{static_cast<i8>(a)}; }>(Format::kSop1, 0x16, "s_sext_i32_i8").flows(kMove),
    salu<[](u32 a) { return i32{static_cast<i16>(a)}; }>(Format::kSop1, 0x17, "s_sext_i32_i16").flows(kMove),
    salu<[](Dst<u32> d, u32 a) { return d.value & ~(1u << (a & 31)); }>(Format::kSop1, 0x18, "s_bitset0_b32").flows({kSetBit, 31}),
    salu<[](Dst<u64> d, u32 a) { return d.value & ~(u64{1} << (a & 63)); }>(Format::kSop1, 0x19, "s_bitset0_b64").flows({kSetBit, 63}),
    salu<[](Dst<u32> d, u32 a) { return d.value | 1u << (a & 31); }>(Format::kSop1, 0x1a, "s_bitset1_b32").flows({kSetBit, 31}),
    salu<[](Dst<u64> d, u32 a) { return d.value | u64{1} << (a & 63); }>(Format::kSop1, 0x1b, "s_bitset1_b64").flows({kSetBit, 63}),
    scalar_row(Format::kSop1, 0x1c, "s_getpc_b64", exec_getpc, Type::kB64),
    scalar_row(Format::kSop1, 0x1d, "s_setpc_b64", exec_setpc, {}, {Type::kB64}, kBranch, Unit::kBranch).with(Trait::kScalarSource | Trait::kLeavesFunction),
    scalar_row(Format::kSop1, 0x1e, "s_swappc_b64", exec_swappc, Type::kB64, {Type::kB64}, kBranch,
               Unit::kBranch).with(Trait::kLeavesFunction),
    scalar_row(Format::kSop1, 0x1f, "s_rfe_b64", exec_unsupported, {}, {Type::kB64}, kBranch,
               Unit::kBranch, Fidelity::kUnverified, "traps: only trap handlers return from exceptions").with(Trait::kScalarSource | Trait::kFromTrap),
    SAVEEXEC(0x20, "s_and", s & e, kAnd),
    SAVEEXEC(0x21, "s_or", s | e, kOr),
    SAVEEXEC(0x22, "s_xor", s ^ e, kUnion),
    SAVEEXEC(0x23, "s_andn2", s & ~e, inverting(kAnd, 1)),
    SAVEEXEC(0x24, "s_orn2", s | ~e, inverting(kOr, 1)),
    SAVEEXEC(0x25, "s_nand", ~(s & e), kAnd),
    SAVEEXEC(0x26, "s_nor", ~(s | e), kOr),
    SAVEEXEC(0x27, "s_xnor", ~(s ^ e), kUnion),
    BOTH(0x28, "s_quadmask", logic(quad_mask(a)), kAny),
    scalar_row(Format::kSop1, 0x2a, "s_movrels_b32", movrels32, Type::kB32, {Type::kB32}, kReadsM0).with(Trait::kScalarSource | Trait::kMovesSource),
    scalar_row(Format::kSop1, 0x2b, "s_movrels_b64", movrels64, Type::kB64, {Type::kB64}, kReadsM0).with(Trait::kScalarSource | Trait::kMovesSource),
    scalar_row(Format::kSop1, 0x2c, "s_movreld_b32", movreld32, Type::kB32, {Type::kB32}, kReadsM0).with(Trait::kMovesResult),
    scalar_row(Format::kSop1, 0x2d, "s_movreld_b64", movreld64, Type::kB64, {Type::kB64}, kReadsM0).with(Trait::kMovesResult),
    scalar_row(Format::kSop1, 0x2e, "s_cbranch_join", exec_unsupported, {}, {Type::kB32}, kBranch,
               Unit::kBranch, Fidelity::kUnverified, "traps: no compiler emits it").with(Trait::kScalarSource | Trait::kConditional),
    salu<[](i32 a) {
      return logic<u32>(a < 0 ? 0u - static_cast<u32>(a) : static_cast<u32>(a));
    }>(Format::kSop1, 0x30, "s_abs_i32"),
    scalar_row(Format::kSop1, 0x32, "s_set_gpr_idx_idx", exec_set_gpr_idx_idx, {}, {Type::kB32},
               kReadsM0 | kWritesM0),
    SAVEEXEC(0x33, "s_andn1", ~s & e, inverting(kAnd, 0)),
    SAVEEXEC(0x34, "s_orn1", ~s | e, inverting(kOr, 0)),
    WREXEC(0x35, "s_andn1", ~s & e, inverting(kAnd, 0)),
    WREXEC(0x36, "s_andn2", s & ~e, inverting(kAnd, 1)),
    salu<[](u32 a) {
      u64 r = 0;
      for (int i = 0; i < 32; ++i)
        if ((a >> i) & 1) r |= u64{3} << 2 * i;
      return r;
    }>(Format::kSop1, 0x37, "s_bitreplicate_b64_b32").flows(kMove),
};
// clang-format on
static_assert(unique_opcodes(kSop1));

constexpr Row program(u16 opcode, const char* name, Inst::Exec exec, u32 effects = 0,
                      bool immediate = false, Unit unit = Unit::kInternal,
                      Fidelity fidelity = Fidelity::kExact, const char* note = "") {
  Row row = scalar_row(Format::kSopp, opcode, name, exec, {}, {}, effects, unit, fidelity, note);
  if (immediate) row.src[0] = Type::kImm;
  return row;
}
constexpr Row branch(u16 opcode, const char* name, Inst::Exec exec, u32 effects = 0) {
  return program(opcode, name, exec, effects | kBranch, true, Unit::kBranch);
}
constexpr const char* kDebugger = "falls through: no debugger is attached";
constexpr const char* kGraphics = "traps: graphics only";

// clang-format off
constexpr Row kSopp[] = {
    program(0x00, "s_nop", exec_nothing, 0, true).with(Trait::kNop),
    program(0x01, "s_endpgm", exec_endpgm, kEndsProgram, true).with(Trait::kEndpgm),
    branch(0x02, "s_branch", exec_branch),
    program(0x03, "s_wakeup", exec_nothing),
    branch(0x04, "s_cbranch_scc0", exec_cbranch_scc0, kReadsScc).with(Trait::kConditional),
    branch(0x05, "s_cbranch_scc1", exec_cbranch_scc1, kReadsScc).with(Trait::kConditional),
    branch(0x06, "s_cbranch_vccz", exec_cbranch_vccz, kReadsVcc).with(Trait::kConditional),
    branch(0x07, "s_cbranch_vccnz", exec_cbranch_vccnz, kReadsVcc).with(Trait::kConditional),
    branch(0x08, "s_cbranch_execz", exec_cbranch_execz, kReadsExec).with(Trait::kConditional),
    branch(0x09, "s_cbranch_execnz", exec_cbranch_execnz, kReadsExec).with(Trait::kConditional),
    program(0x0a, "s_barrier", exec_barrier, kBarrier),
    program(0x0b, "s_setkill", exec_unsupported, kEndsProgram, true, Unit::kInternal,
            Fidelity::kUnverified, "traps: ends the wave by debugger's wish"),
    program(0x0c, "s_waitcnt", exec_nothing, 0, true).with(Trait::kWaitcnt),
    program(0x0d, "s_sethalt", exec_unsupported, 0, true, Unit::kInternal, Fidelity::kUnverified,
            "traps: a halted wave never goes on without a debugger"),
    program(0x0e, "s_sleep", exec_sleep, 0, true).with(Trait::kSleep),
    program(0x0f, "s_setprio", exec_setprio, 0, true),
    program(0x10, "s_sendmsg", exec_nothing, kReadsM0, true, Unit::kMessage, Fidelity::kModelled,
            "messages reach no host").with(Trait::kMessage),
    program(0x11, "s_sendmsghalt", exec_unsupported, kReadsM0, true, Unit::kMessage,
            Fidelity::kUnverified, "traps: a halted wave never goes on without a debugger").with(Trait::kMessage),
    program(0x12, "s_trap", exec_trap, 0, true, Unit::kInternal, Fidelity::kModelled,
            "3 goes on, as without a debugger; others end the launch").with(Trait::kTraps),
    program(0x13, "s_icache_inv", exec_nothing),
    program(0x14, "s_incperflevel", exec_nothing, 0, true),
    program(0x15, "s_decperflevel", exec_nothing, 0, true),
    program(0x16, "s_ttracedata", exec_nothing, kReadsM0).with(Trait::kMessage),
    program(0x17, "s_cbranch_cdbgsys", exec_nothing, kBranch, true, Unit::kBranch, Fidelity::kModelled, kDebugger).with(Trait::kConditional),
    program(0x18, "s_cbranch_cdbguser", exec_nothing, kBranch, true, Unit::kBranch, Fidelity::kModelled, kDebugger).with(Trait::kConditional),
    program(0x19, "s_cbranch_cdbgsys_or_user", exec_nothing, kBranch, true, Unit::kBranch, Fidelity::kModelled, kDebugger).with(Trait::kConditional),
    program(0x1a, "s_cbranch_cdbgsys_and_user", exec_nothing, kBranch, true, Unit::kBranch, Fidelity::kModelled, kDebugger).with(Trait::kConditional),
    program(0x1b, "s_endpgm_saved", exec_endpgm, kEndsProgram),
    program(0x1c, "s_set_gpr_idx_off", exec_set_gpr_idx_off, kWritesMode),
    program(0x1d, "s_set_gpr_idx_mode", exec_set_gpr_idx_mode, kWritesM0, true).with(Trait::kIndexMask),
    program(0x1e, "s_endpgm_ordered_ps_done", exec_unsupported, kEndsProgram, false, Unit::kInternal,
            Fidelity::kUnverified, kGraphics),
};
// clang-format on
static_assert(unique_opcodes(kSopp));

}  // namespace

std::span<const Row> sop1_rows() { return kSop1; }
std::span<const Row> sopp_rows() { return kSopp; }

}  // namespace vdev

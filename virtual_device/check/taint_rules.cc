#include "check/taint_rules.h"

#include <string_view>
#include <unordered_map>

#include "isa/tables.h"

namespace vdev {
namespace {

using enum TaintKind;

struct Named {
  std::string_view name;
  TaintRule rule;
};

// A shift amount in source i, of which `look` counts.
constexpr TaintRule steered(TaintKind kind, int i, u32 look) {
  TaintRule rule{kind, static_cast<u8>(1 << i), {0, 0, 0}};
  rule.look[i] = look;
  return rule;
}
constexpr TaintRule looking(TaintKind kind, u32 a, u32 b = 0, u32 c = 0) {
  return {kind, 0, {a, b, c}};
}
constexpr TaintRule plain(TaintKind kind) { return {kind, 0, {0, 0, 0}}; }

constexpr Named kNamed[] = {
    {"v_mov_b32", plain(kMove)},
    {"v_mov_b64", plain(kMove)},
    {"v_bfrev_b32", plain(kMove)},
    {"v_pack_b32_f16", plain(kMove)},
    {"v_lshrrev_b32", steered(kMove, 0, 31)},
    {"v_ashrrev_i32", steered(kMove, 0, 31)},
    {"v_lshlrev_b32", steered(kMove, 0, 31)},
    {"v_lshrrev_b16", steered(kMove, 0, 15)},
    {"v_ashrrev_i16", steered(kMove, 0, 15)},
    {"v_lshlrev_b16", steered(kMove, 0, 15)},
    {"v_lshrrev_b64", steered(kMove, 0, 63)},
    {"v_ashrrev_i64", steered(kMove, 0, 63)},
    {"v_lshlrev_b64", steered(kMove, 0, 63)},
    {"v_alignbit_b32", steered(kMove, 2, 31)},
    {"v_alignbyte_b32", steered(kMove, 2, 3)},
    {"v_bfe_u32", {kMove, 6, {0, 31, 31}}},
    {"v_bfe_i32", {kMove, 6, {0, 31, 31}}},
    {"v_perm_b32", {kPermute, 4, {0, 0, 0}}},
    {"v_cndmask_b32", plain(kSelect)},
    {"v_not_b32", plain(kUnion)},
    {"v_xor_b32", plain(kUnion)},
    {"v_xnor_b32", plain(kUnion)},
    {"v_and_b32", plain(kAnd)},
    {"v_or_b32", plain(kOr)},
    {"v_or3_b32", plain(kOr)},
    {"v_and_or_b32", plain(kAndOr)},
    {"v_bfi_b32", plain(kSelectBits)},
    {"v_lshl_or_b32", steered(kShiftOr, 1, 31)},
    {"v_lshl_add_u32", steered(kShiftSum, 1, 31)},
    {"v_lshl_add_u64", steered(kShiftSum, 1, 7)},
    {"v_add_lshl_u32", steered(kSumShift, 2, 31)},
    {"v_add_u32", plain(kSum)},
    {"v_sub_u32", plain(kSum)},
    {"v_subrev_u32", plain(kSum)},
    {"v_add_i32", plain(kSum)},
    {"v_sub_i32", plain(kSum)},
    {"v_add_co_u32", plain(kSum)},
    {"v_sub_co_u32", plain(kSum)},
    {"v_subrev_co_u32", plain(kSum)},
    {"v_addc_co_u32", plain(kSum)},
    {"v_subb_co_u32", plain(kSum)},
    {"v_subbrev_co_u32", plain(kSum)},
    {"v_add_u16", plain(kSum)},
    {"v_sub_u16", plain(kSum)},
    {"v_subrev_u16", plain(kSum)},
    {"v_mul_lo_u16", plain(kSum)},
    {"v_mad_u16", plain(kSum)},
    {"v_mad_i16", plain(kSum)},
    {"v_mul_lo_u32", plain(kSum)},
    {"v_add3_u32", plain(kSum)},
    {"v_xad_u32", plain(kSum)},
    {"v_mad_u64_u32", plain(kSum)},
    {"v_mad_i64_i32", plain(kSum)},
    {"v_mul_u32_u24", looking(kSum, 0xffffff, 0xffffff)},
    {"v_mul_i32_i24", looking(kSum, 0xffffff, 0xffffff)},
    {"v_mad_u32_u24", looking(kSum, 0xffffff, 0xffffff)},
    {"v_mad_i32_i24", looking(kSum, 0xffffff, 0xffffff)},
    {"v_mul_hi_u32_u24", looking(kAny, 0xffffff, 0xffffff)},
    {"v_mul_hi_i32_i24", looking(kAny, 0xffffff, 0xffffff)},
    {"v_cvt_f32_ubyte0", looking(kAny, 0xff)},
    {"v_cvt_f32_ubyte1", looking(kAny, 0xff00)},
    {"v_cvt_f32_ubyte2", looking(kAny, 0xff0000)},
    {"v_cvt_f32_ubyte3", looking(kAny, 0xff000000)},
    {"v_cvt_off_f32_i4", looking(kAny, 0xf)},
    {"v_cvt_f32_fp8", looking(kAny, 0xff)},
    {"v_cvt_f32_bf8", looking(kAny, 0xff)},
    {"v_cvt_pk_f32_fp8", looking(kAny, 0xffff)},
    {"v_cvt_pk_f32_bf8", looking(kAny, 0xffff)},
    {"v_bfm_b32", looking(kAny, 31, 31)},
    {"v_cvt_pkrtz_f16_f32", plain(kPack)},
    {"v_cvt_pknorm_i16_f32", plain(kPack)},
    {"v_cvt_pknorm_u16_f32", plain(kPack)},
    {"v_cvt_pknorm_i16_f16", plain(kPack)},
    {"v_cvt_pknorm_u16_f16", plain(kPack)},
    {"v_cvt_pk_u16_u32", plain(kPack)},
    {"v_cvt_pk_i16_i32", plain(kPack)},
    {"v_cvt_pk_u8_f32", {kByte, 2, {0, 3, 0}}},
    {"v_pk_fmac_f16", plain(kHalves)},
    {"v_readfirstlane_b32", plain(kMoveWhole)},
    {"v_swap_b32", plain(kMoveWhole)},
    {"v_accvgpr_mov_b32", plain(kMoveWhole)},
    {"v_accvgpr_read_b32", plain(kMoveWhole)},
    {"v_accvgpr_write_b32", plain(kMoveWhole)},
    {"v_pk_mov_b32", plain(kMoveWhole)},
    {"v_readlane_b32", plain(kLane)},
    {"v_writelane_b32", plain(kLane)},
    {"v_pk_fma_f32", plain(kPacked32)},
    {"v_pk_mul_f32", plain(kPacked32)},
    {"v_pk_add_f32", plain(kPacked32)},
    {"v_fma_mix_f32", plain(kMix)},
    {"v_fma_mixlo_f16", plain(kMix)},
    {"v_fma_mixhi_f16", plain(kMix)},
    {"v_cvt_pk_fp8_f32", plain(kFp8Pack)},
    {"v_cvt_pk_bf8_f32", plain(kFp8Pack)},
    {"v_cvt_sr_fp8_f32", plain(kFp8Round)},
    {"v_cvt_sr_bf8_f32", plain(kFp8Round)},
};

TaintRule make_rule(const Row& row) {
  const std::string_view name = row.name;
  for (const Named& named : kNamed)
    if (named.name == name) return named.rule;
  const auto starts = [&](std::string_view text) { return name.substr(0, text.size()) == text; };
  if (starts("v_pk_")) return plain(kPacked16);
  if (starts("v_cmp")) {
    // Of integers: v_cmp_eq_u32, v_cmpx_ne_i64, ...
    const bool floats = name[name.size() - 3] == 'f';
    const size_t at = name.find('_', 2);
    const std::string_view what = name.substr(at + 1);
    if (what.substr(0, 2) == "f_" || what.substr(0, 2) == "t_" || what.substr(0, 4) == "tru_")
      return plain(kNothing);
    if (!floats && (what.substr(0, 3) == "eq_" || what.substr(0, 3) == "ne_")) return plain(kEqual);
  }
  return {};
}

}  // namespace

const TaintRule& taint_rule(const Row& row) {
  static thread_local std::unordered_map<const Row*, TaintRule> rules;
  const auto found = rules.find(&row);
  return found != rules.end() ? found->second : rules.emplace(&row, make_rule(row)).first->second;
}

}  // namespace vdev

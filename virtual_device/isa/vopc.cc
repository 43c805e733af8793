// VOPC: vector compares. The mask goes to VCC, or to an SGPR pair in the VOP3 form; the v_cmpx
// forms write EXEC as well.
#include "isa/lane.h"
#include "isa/tables.h"
#include "numerics/half.h"

namespace vdev {
namespace {

using enum FlowKind;

constexpr Format kF = Format::kVopc;

inline f32 wide(h16 x, const FpMode& m) {
  return bit_cast<f32>(widen_f16(flush_in<F16>(x.bits, m)));
}

template <auto Fn>
constexpr Row compare(u16 opcode, const char* name, u32 effects) {
  return valu<Fn>(kF, opcode, name, Unit::kValu, kNoDpp | effects);
}
template <auto Fn>
constexpr Row compare64(u16 opcode, const char* name, u32 effects) {
  Row row = compare<Fn>(opcode, name, effects);
  row.unit = Unit::kValu64;
  row.effects |= kNoSdwa;
  return row;
}

#define FLOAT_ROW(WRAP, BASE, PREFIX, EFFECTS, TYPE, ARGS, X, Y, I, NAME, EXPR) \
  WRAP<[] ARGS {                                                                \
    const auto a = X;                                                           \
    const auto b = Y;                                                           \
    (void)a, (void)b;                                                           \
    return bool(EXPR);                                                          \
  }>(BASE + I, PREFIX NAME "_" TYPE, EFFECTS)
#define FLOAT_ROWS(WRAP, BASE, PREFIX, EFFECTS, TYPE, ARGS, X, Y)                             \
  FLOAT_ROW(WRAP, BASE, PREFIX, EFFECTS, TYPE, ARGS, X, Y, 0, "f", false).flows(kNothing),    \
      FLOAT_ROW(WRAP, BASE, PREFIX, EFFECTS, TYPE, ARGS, X, Y, 1, "lt", a < b),               \
      FLOAT_ROW(WRAP, BASE, PREFIX, EFFECTS, TYPE, ARGS, X, Y, 2, "eq", a == b),              \
      FLOAT_ROW(WRAP, BASE, PREFIX, EFFECTS, TYPE, ARGS, X, Y, 3, "le", a <= b),              \
      FLOAT_ROW(WRAP, BASE, PREFIX, EFFECTS, TYPE, ARGS, X, Y, 4, "gt", b < a),               \
      FLOAT_ROW(WRAP, BASE, PREFIX, EFFECTS, TYPE, ARGS, X, Y, 5, "lg", a < b || b < a),      \
      FLOAT_ROW(WRAP, BASE, PREFIX, EFFECTS, TYPE, ARGS, X, Y, 6, "ge", b <= a),              \
      FLOAT_ROW(WRAP, BASE, PREFIX, EFFECTS, TYPE, ARGS, X, Y, 7, "o", a == a && b == b),     \
      FLOAT_ROW(WRAP, BASE, PREFIX, EFFECTS, TYPE, ARGS, X, Y, 8, "u", a != a || b != b),     \
      FLOAT_ROW(WRAP, BASE, PREFIX, EFFECTS, TYPE, ARGS, X, Y, 9, "nge", !(b <= a)),          \
      FLOAT_ROW(WRAP, BASE, PREFIX, EFFECTS, TYPE, ARGS, X, Y, 10, "nlg", !(a < b || b < a)), \
      FLOAT_ROW(WRAP, BASE, PREFIX, EFFECTS, TYPE, ARGS, X, Y, 11, "ngt", !(b < a)),          \
      FLOAT_ROW(WRAP, BASE, PREFIX, EFFECTS, TYPE, ARGS, X, Y, 12, "nle", !(a <= b)),         \
      FLOAT_ROW(WRAP, BASE, PREFIX, EFFECTS, TYPE, ARGS, X, Y, 13, "neq", !(a == b)),         \
      FLOAT_ROW(WRAP, BASE, PREFIX, EFFECTS, TYPE, ARGS, X, Y, 14, "nlt", !(a < b)),          \
      FLOAT_ROW(WRAP, BASE, PREFIX, EFFECTS, TYPE, ARGS, X, Y, 15, "tru", true).flows(kNothing)
#define FLOAT_FAMILY(WRAP, BASE, TYPE, ARGS, X, Y)       \
  FLOAT_ROWS(WRAP, BASE, "v_cmp_", 0, TYPE, ARGS, X, Y), \
      FLOAT_ROWS(WRAP, BASE + 0x10, "v_cmpx_", kWritesExec, TYPE, ARGS, X, Y)

#define INT_ROWS(WRAP, BASE, PREFIX, EFFECTS, TYPE, T)                                             \
  WRAP<[](T, T) { return false; }>(BASE + 0, PREFIX "f_" TYPE, EFFECTS).flows(kNothing),           \
      WRAP<[](T a, T b) { return (a < b); }>(BASE + 1, PREFIX "lt_" TYPE, EFFECTS),                \
      WRAP<[](T a, T b) { return (a == b); }>(BASE + 2, PREFIX "eq_" TYPE, EFFECTS).flows(kEqual), \
      WRAP<[](T a, T b) { return (a <= b); }>(BASE + 3, PREFIX "le_" TYPE, EFFECTS),               \
      WRAP<[](T a, T b) { return (b < a); }>(BASE + 4, PREFIX "gt_" TYPE, EFFECTS),                \
      WRAP<[](T a, T b) { return (a != b); }>(BASE + 5, PREFIX "ne_" TYPE, EFFECTS).flows(kEqual), \
      WRAP<[](T a, T b) { return (b <= a); }>(BASE + 6, PREFIX "ge_" TYPE, EFFECTS),               \
      WRAP<[](T, T) { return true; }>(BASE + 7, PREFIX "t_" TYPE, EFFECTS).flows(kNothing)
#define INT_FAMILY(WRAP, BASE, TYPE, T)       \
  INT_ROWS(WRAP, BASE, "v_cmp_", 0, TYPE, T), \
      INT_ROWS(WRAP, BASE + 0x10, "v_cmpx_", kWritesExec, TYPE, T)

#define CLASS_ROWS(WRAP, BASE, TYPE, T, F)                                                     \
  WRAP<[](T a, u32 b) { return cmp_class<F>(a.bits, b); }>(BASE, "v_cmp_class_" TYPE, 0),      \
      WRAP<[](T a, u32 b) { return cmp_class<F>(a.bits, b); }>(BASE + 1, "v_cmpx_class_" TYPE, \
                                                               kWritesExec)

// clang-format off
constexpr Row kVopc[] = {
    CLASS_ROWS(compare, 0x10, "f32", rawf32, F32),
    CLASS_ROWS(compare64, 0x12, "f64", rawf64, F64),
    CLASS_ROWS(compare, 0x14, "f16", h16, F16),
    FLOAT_FAMILY(compare, 0x20, "f16", (const FpMode& m, h16 p, h16 q), wide(p, m), wide(q, m)),
    FLOAT_FAMILY(compare, 0x40, "f32", (f32 p, f32 q), p, q),
    FLOAT_FAMILY(compare64, 0x60, "f64", (f64 p, f64 q), p, q),
    INT_FAMILY(compare, 0xa0, "i16", i16),
    INT_FAMILY(compare, 0xa8, "u16", u16),
    INT_FAMILY(compare, 0xc0, "i32", i32),
    INT_FAMILY(compare, 0xc8, "u32", u32),
    INT_FAMILY(compare64, 0xe0, "i64", i64),
    INT_FAMILY(compare64, 0xe8, "u64", u64),
};
// clang-format on
static_assert(unique_opcodes(kVopc));

}  // namespace

std::span<const Row> vopc_rows() { return kVopc; }

}  // namespace vdev

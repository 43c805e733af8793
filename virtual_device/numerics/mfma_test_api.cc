// C entry points through which the tests run single matrix instructions.
#include <cstring>
#include <string_view>
#include <vector>

#include "arch/arch.h"
#include "numerics/float_rules_mxcsr.h"
#include "numerics/mfma.h"

#define VDEV_TEST_API extern "C" __attribute__((visibility("default")))

namespace vdev {
namespace {

// "PROCESSOR MNEMONIC"; of the default processor without one.
const MfmaShape* find_shape(std::string_view name) {
  const Processor* processor = &default_machine().arch->processor;
  if (const size_t space = name.find(' '); space != name.npos) {
    processor = find_processor(name.substr(0, space));
    name.remove_prefix(space + 1);
  }
  if (processor == nullptr) return nullptr;
  for (const MfmaShape& shape : mfma_shapes())
    if (shape.name == name && shape.sets & processor->instructions) return &shape;
  return nullptr;
}

}  // namespace

struct MfmaTestShape {
  const char* name;
  i32 opcode, m, n, k, blocks, a_regs, b_regs, c_regs, d_regs, passes, has_cbsz_abid, has_blgp;
};

// 0, or -1 behind the processor's last shape, or if there is no such processor.
VDEV_TEST_API int vdev_test_mfma_shape(const char* cpu, int position, MfmaTestShape* out) {
  const Processor* const processor = find_processor(cpu);
  if (processor == nullptr || position < 0) return -1;
  const MfmaShape* found = nullptr;
  for (const MfmaShape& shape : mfma_shapes())
    if (shape.sets & processor->instructions && position-- == 0) found = &shape;
  if (found == nullptr) return -1;
  const MfmaShape& s = *found;
  const MatrixPasses* const passes = processor->passes(s.name);
  const MfmaGeometry& g = s.geometry;
  *out = {s.name,
          s.opcode,
          g.m,
          g.n,
          g.k,
          g.blocks,
          s.a_regs,
          s.b_regs,
          s.c_regs,
          s.d_regs,
          passes ? passes->passes : 0,
          s.has_cbsz_abid,
          s.has_blgp};
  return 0;
}

// Runs `count` instructions. Operands are count x registers x 64 dwords; d is read by smfmac.
// mxcsr is that of a running wave. Scales, if any, are a register each, the same for all of the
// instructions. Returns 0, or -1 if there is no instruction `name`.
VDEV_TEST_API int vdev_test_mfma_scaled(const char* name, int count, const u32* a, const u32* b,
                                        const u32* c, u32* d, u32 cbsz, u32 abid, u32 blgp,
                                        int flush_f32_ab, u32 mxcsr, int exact, const u32* scale_a,
                                        const u32* scale_b, u32 byte_a, u32 byte_b) {
  const MfmaShape* const s = find_shape(name);
  if (s == nullptr) return -1;
  MfmaControl control{static_cast<u8>(cbsz), static_cast<u8>(abid), static_cast<u8>(blgp),
                      flush_f32_ab != 0};
  Reg scales[2];
  for (int side = 0; side < 2; ++side) {
    const u32* const scale = side == 0 ? scale_a : scale_b;
    if (scale == nullptr) continue;
    std::memcpy(&scales[side], scale, sizeof(Reg));
    control.scale[side] = &scales[side];
    control.scale_byte[side] = static_cast<u8>(side == 0 ? byte_a : byte_b);
  }
  std::vector<Reg> regs(static_cast<size_t>(s->a_regs + s->b_regs + s->c_regs + s->d_regs));
  Reg* const ra = regs.data();
  Reg* const rb = ra + s->a_regs;
  Reg* const rc = rb + s->b_regs;
  Reg* const rd = rc + s->c_regs;
  const MxcsrScope scope(~0u, mxcsr);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    std::memcpy(ra, a + i * s->a_regs * kLanes, s->a_regs * sizeof(Reg));
    std::memcpy(rb, b + i * s->b_regs * kLanes, s->b_regs * sizeof(Reg));
    std::memcpy(rc, c + i * s->c_regs * kLanes, s->c_regs * sizeof(Reg));
    std::memcpy(rd, d + i * s->d_regs * kLanes, s->d_regs * sizeof(Reg));
    (exact ? s->exact : s->fn)(ra, rb, rc, rd, control);
    std::memcpy(d + i * s->d_regs * kLanes, rd, s->d_regs * sizeof(Reg));
  }
  return 0;
}

VDEV_TEST_API int vdev_test_mfma(const char* name, int count, const u32* a, const u32* b,
                                 const u32* c, u32* d, u32 cbsz, u32 abid, u32 blgp,
                                 int flush_f32_ab, u32 mxcsr, int exact) {
  return vdev_test_mfma_scaled(name, count, a, b, c, d, cbsz, abid, blgp, flush_f32_ab, mxcsr,
                               exact, nullptr, nullptr, 0, 0);
}

// One instruction on a register file, so that operands can overlap: a to d are register numbers.
VDEV_TEST_API int vdev_test_mfma_in_place(const char* name, u32* file, int num_regs, int a, int b,
                                          int c, int d, int exact) {
  const MfmaShape* const s = find_shape(name);
  if (s == nullptr) return -1;
  std::vector<Reg> regs(static_cast<size_t>(num_regs));
  std::memcpy(regs.data(), file, regs.size() * sizeof(Reg));
  (exact ? s->exact : s->fn)(&regs[static_cast<size_t>(a)], &regs[static_cast<size_t>(b)],
                             &regs[static_cast<size_t>(c)], &regs[static_cast<size_t>(d)], {});
  std::memcpy(file, regs.data(), regs.size() * sizeof(Reg));
  return 0;
}

// The message of mfma_control_error, empty if there is none.
VDEV_TEST_API const char* vdev_test_mfma_control(const char* name, u32 cbsz, u32 abid, u32 blgp) {
  const MfmaShape* const s = find_shape(name);
  if (s == nullptr) return "no such instruction";
  const char* const error = mfma_control_error(
      *s, {static_cast<u8>(cbsz), static_cast<u8>(abid), static_cast<u8>(blgp), false});
  return error == nullptr ? "" : error;
}

}  // namespace vdev

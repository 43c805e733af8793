// d[16, 16] = a[16, 32] * b[16, 32]^T + c[16, 16]; a and b of ELEMENT, c and d f32, all row-major.
// FORM: kPlain, kOrdered, kFromAcc (b in accumulation registers), kIntoAcc (d in them).
#include "tile/accumulators.h"

#ifndef FORM
#define FORM kPlain
#define ELEMENT kBf16
#endif

enum Form { kPlain, kOrdered, kFromAcc, kIntoAcc };
constexpr Element kOf = Element::ELEMENT;
constexpr int kB = 8, kD = 12;  // numbers of registers
using InAcc = Accumulators<kD, 2>;

extern "C" __global__ void WORKGROUP(64, 1)
    mma_test(const bf16x8* a, const bf16x8* b, const float* c, float* d) {
  const int row = matrix_row(), group = lane_group();
  f32x4 from, sum;
  for (int i = 0; i < 4; ++i) from[i] = c[(4 * group + i) * kMatrix + row];
  const bf16x8 of_a = a[row * kLaneGroups + group], of_b = b[row * kLaneGroups + group];
  if constexpr (FORM == kPlain) {
    sum = mma<kOf>(of_a, of_b, from);
  } else {
    RESERVE_ACC_TO(19);
    f32x4 first;
    bf16x4 a_half[2] = {half_of(of_a, 0), half_of(of_a, 1)},
           b_half[2] = {half_of(of_b, 0), half_of(of_b, 1)};
    for (int h = 0; h < 2; ++h) {
      ordered::settle(a_half[h]);
      ordered::settle(b_half[h]);
    }
    ordered::s_nop<2>();
    if constexpr (FORM == kOrdered) {
      ordered::mma_zero<kOf>(first, a_half[0], b_half[0]);
      ordered::mma<kOf>(first, a_half[1], b_half[1]);
    }
    if constexpr (FORM == kFromAcc) {
      unroll<4>([&]<int i>() { v_accvgpr_write_b32<kB + i>(b_half[i / 2][i % 2]); });
      ordered::s_nop<4>();
      ordered::mma_acc_zero<kOf, kB>(first, a_half[0]);
      ordered::mma_acc<kOf, kB + 2>(first, a_half[1]);
    }
    if constexpr (FORM == kIntoAcc) {
      InAcc::zero();
      InAcc::write<1>(from);
      ordered::s_nop<4>();
      InAcc::mma<kOf, 1>(a_half[0], b_half[0]);
      InAcc::mma<kOf, 1>(a_half[1], b_half[1]);
      ordered::s_nop<8>();
      sum = InAcc::read<1>() + InAcc::read<0>();
    } else {
      ordered::s_nop<8>();
      ordered::settle(first);
      sum = first + from;
    }
  }
  for (int i = 0; i < 4; ++i) d[(4 * group + i) * kMatrix + row] = sum[i];
}

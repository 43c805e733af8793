// The main loop for matrices of any alignment and any length of k: element by element. Interface
// and distribution of the work are those of gemm/mainloop.h. Of what is stored by k, each row of
// memory is one of k.
#pragma once
#include "gemm/mainloop.h"

template <class S, bool kAByK, bool kBByK>
struct ElementMainloop {
  using Elements = typename S::Elements;
  using Row = const Global<typename Elements::Stored>*;
  static constexpr int kUnit = 1;
  static_assert(S::kTile == kMatrix && S::kTilesM == 1 && S::kTilesN == 1);
  static constexpr int kAhead = 2;   // half lines that are under way
  static constexpr int kLoads = 16;  // of a half line

  Row row_a, row_b;
  int step_a, step_b;  // to the next element of k, by k
  int first, end;      // elements of k: of the lane in the next half line, past the wave's last one
  uint32_t a[kAhead + 1][8], b[kAhead + 1][8];
  f32x4 sum;

  template <class Between>
  __device__ __forceinline__ void start(const Operand& of_a, const Operand& of_b,
                                        Rows<S::kTile> rows, int wave_m, int row, int group,
                                        int begin, int steps, int k, Between&& between) {
    between();
    row_a = found<kAByK>(of_a, wave_m * S::kTile + row, 0);
    row_b = found<kBByK>(of_b, rows.column(0, row), rows.further(row));
    step_a = of_a.stride;
    step_b = of_b.stride;
    first = kLine * begin + 8 * group;
    const int past = kLine * (begin + (steps - 1) * S::kWavesK + 1);
    end = past < k ? past : k;
    sum = f32x4{};
    load<0, 0>();
    load<1, 1>();
  }
  // Elements that do not exist are read as the last or the first one, and not used.
  template <int kSlot, int h>
  __device__ __forceinline__ void load() {
    ordered::settle(first);  // or the compiler finds addresses of several half lines at once
    Row from_a[8], from_b[8];
    unroll<8>([&]<int i>() {
      int k = first + i < end - 1 ? first + i : end - 1;
      k = k > 0 ? k : 0;
      from_a[i] = row_a + (kAByK ? k * int64_t(step_a) : k);
      from_b[i] = row_b + (kBByK ? k * int64_t(step_b) : k);
    });
    unroll<8>([&]<int i>() {
      Elements::load(a[kSlot][i], from_a[i]);
      Elements::load(b[kSlot][i], from_b[i]);
    });
    for (int i = 0; i < 8; ++i) ordered::keep(from_a[i], from_b[i]);
    ordered::end_clause();
    first += h == 0 ? kLine / 2 : kLine / 2 + kLine * (S::kWavesK - 1);
  }
  // Slot by slot, so that slots and halves recur together every three lines.
  __device__ __forceinline__ void run(int steps) {
    int at = first - kLine * S::kWavesK;  // of the lane, in the half line that is multiplied
    for (int halves = 2 * steps; halves > 0; halves -= 2 * (kAhead + 1)) {
      unroll<2 * (kAhead + 1)>([&]<int i>() {
        load<(i + kAhead) % (kAhead + 1), i % 2>();
        ordered::s_waitcnt<kAhead * kLoads, ordered::kAnyLgkm>();
        multiply<i % (kAhead + 1)>(at);
        at += i % 2 == 0 ? kLine / 2 : kLine / 2 + kLine * (S::kWavesK - 1);
      });
      if constexpr (kBByK || Elements::kBytes == 1) arrive();
    }
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();
  }
  template <int>
  __device__ __forceinline__ f32x4 fragment() const {
    return sum;
  }

 private:
  // All that is under way: the compiler moves registers of both where the loop closes.
  __device__ __forceinline__ void arrive() {
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();
    for (auto& slot : a)
      for (auto& x : slot) ordered::settle(x);
    for (auto& slot : b)
      for (auto& x : slot) ordered::settle(x);
  }
  template <bool kByK>
  static __device__ __forceinline__ Row found(const Operand& x, int row, int further) {
    const int own = x.first + row;
    return (Row)x.base +
           ((own < x.rows ? own : x.rows - 1) + further) * int64_t(kByK ? 1 : x.stride);
  }
  template <int kSlot>
  __device__ __forceinline__ void multiply(int at) {
    constexpr int kOfDword = 4 / Elements::kBytes;
    typename Elements::Packed elements_a, elements_b;
    unroll<8>([&]<int i>() {
      ordered::settle(a[kSlot][i]);
      ordered::settle(b[kSlot][i]);
      const bool there = at + i < end;
      const uint32_t element_a = there ? a[kSlot][i] : 0, element_b = there ? b[kSlot][i] : 0;
      if constexpr (i % kOfDword == 0) {
        elements_a[i / kOfDword] = element_a;
        elements_b[i / kOfDword] = element_b;
      } else {
        elements_a[i / kOfDword] |= element_a << 32 / kOfDword * (i % kOfDword);
        elements_b[i / kOfDword] |= element_b << 32 / kOfDword * (i % kOfDword);
      }
    });
    sum = Elements::mma(elements_b, elements_a, sum);
  }
};

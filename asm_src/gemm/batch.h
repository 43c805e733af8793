// Which product of a launch a workgroup works on, where arguments tell products apart: along the y
// axis of the grid the tiles of m of one follow those of the one before.
#pragma once
#include "gemm/arguments.h"

template <class S, class Args>
struct Batch {
  static constexpr bool kExists = requires(Args args) { args.a_batch; };
  static constexpr int kBytes = S::Elements::kBytes;
  int product = 0, tile_m;

  __device__ __forceinline__ Batch(Args& args, int y) : tile_m(y) {
    if constexpr (kExists) {
      const int tiles_m = uint32_t(args.m + S::kRowsM - 1) / S::kRowsM;
      product = uint32_t(y) / uint32_t(tiles_m);
      tile_m = y - product * tiles_m;
      args.a += product * args.a_batch * kBytes;
      args.b += product * args.b_batch * kBytes;
      if constexpr (kBytes == 2) move(args.bias, args.bias_batch * kBytes);
    }
  }
  // Moves the arguments that come late.
  __device__ __forceinline__ void move_late(Args& args) const {
    if constexpr (kExists) {
      const int bytes = args.out_type == kFloat32 ? 4 : 2;
      args.out += product * args.out_batch * bytes;
      move(args.addend, args.addend_batch * bytes);
      if constexpr (kBytes == 1) {
        move(args.bias, args.bias_batch * bytes);
        move(args.scale_a, args.scale_a_batch * int(sizeof(float)));
        move(args.scale_b, args.scale_b_batch * int(sizeof(float)));
      }
    }
  }

 private:
  // What may not be there, which is 0.
  __device__ __forceinline__ void move(uint64_t& address, int64_t bytes) const {
    if (address) address += product * bytes;
  }
};

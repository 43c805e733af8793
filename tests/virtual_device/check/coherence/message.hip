// One workgroup writes data[0..63] and raises a flag; another polls the flag and copies the data to
// `seen`. Each kernel is one variant of the sequence; the symbols use.<kernel> and poll.<kernel>
// are the load of the data and of the flag, store.<kernel> and raise.<kernel> the stores.
#include "isa/device.h"

#define PLACE(kernel, role) ".globl " role "." #kernel "\n" role "." #kernel ":\n"
#define CALM "s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)\ns_nop 15\ns_nop 15\n"
#define WAIT "s_waitcnt vmcnt(0)\n"
#define WBL2 "buffer_wbl2 sc1\n"
#define INV "buffer_inv sc1\n"

// `publish` stands between the data's store and the flag's; `arrived` between the poll and the use
// of what it returned, `acquire` between the last poll and the data's load.
#define MESSAGE(kernel, store_bits, publish, raise, raise_bits, poll, poll_bits, arrived, acquire, \
                load_bits)                                                                         \
  extern "C" __global__ WORKGROUP(64, 1) void kernel(uint32_t* data, uint32_t* flag,               \
                                                     uint32_t* seen, uint32_t producer) {          \
    const uint32_t at = 4 * Lane::in_wave();                                                       \
    if (__builtin_amdgcn_workgroup_id_x() == producer) {                                           \
      asm volatile(CALM                                                                            \
                   "v_add_u32_e32 v10, 1, %0\nv_mov_b32_e32 v11, 0\nv_mov_b32_e32 v12, 1\n"        \
                   "s_nop 15\n" PLACE(kernel, "store") "global_store_dword %0, v10, %1" store_bits \
                                                       "\n" publish PLACE(kernel, "raise")         \
                                                           raise raise_bits "\n" CALM ::"v"(at),   \
                   "s"(data), "s"(flag)                                                            \
                   : "v10", "v11", "v12", "memory");                                               \
    } else {                                                                                       \
      asm volatile(CALM                                                                            \
                   "v_mov_b32_e32 v11, 0\nv_mov_b32_e32 v12, 0\ns_nop 15\n"                        \
                   "1: " PLACE(kernel, "poll") poll poll_bits                                      \
                   "\n" arrived                                                                    \
                   "v_readfirstlane_b32 s41, v13\n"                                                \
                   "s_cmp_eq_u32 s41, 0\n"                                                         \
                   "s_cbranch_scc1 1b\n" acquire PLACE(                                            \
                       kernel, "use") "global_load_dword v10, %0, %1" load_bits "\n" CALM          \
                                      "global_store_dword %0, v10, %3\n" CALM ::"v"(at),           \
                   "s"(data), "s"(flag), "s"(seen)                                                 \
                   : "v10", "v11", "v12", "v13", "s41", "scc", "memory");                          \
    }                                                                                              \
  }

#define STORE_FLAG "global_store_dword v11, v12, %2"
#define LOAD_FLAG "global_load_dword v13, v11, %2"
#define ADD_FLAG "global_atomic_add v11, v12, %2"
#define FETCH_FLAG "global_atomic_add v13, v11, v12, %2 sc0"

// Ordered.
MESSAGE(written_back, "", WBL2 WAIT, STORE_FLAG, " sc1", LOAD_FLAG, " sc1", WAIT, INV, "")
MESSAGE(system_scope, "", "buffer_wbl2 sc0 sc1\n" WAIT, STORE_FLAG, " sc0 sc1", LOAD_FLAG,
        " sc0 sc1", WAIT, "buffer_inv sc0 sc1\n", "")
MESSAGE(atomics, "", WBL2 WAIT, ADD_FLAG, "", FETCH_FLAG, "", WAIT, INV, "")
MESSAGE(written_through, " sc1", WAIT, STORE_FLAG, " sc1", LOAD_FLAG, " sc1", WAIT, "", " sc1")
MESSAGE(through_then_inv, " sc1", WAIT, STORE_FLAG, " sc1", LOAD_FLAG, " sc1", WAIT, INV, "")
MESSAGE(volatile_data, " sc0 sc1", WAIT, STORE_FLAG, " sc0 sc1", LOAD_FLAG, " sc0 sc1", WAIT, "",
        " sc0 sc1")
MESSAGE(wait_leaves_a_load, "", WBL2 "global_load_dword v13, v11, %2\ns_waitcnt vmcnt(1)\n",
        STORE_FLAG, " sc1", LOAD_FLAG, " sc1", WAIT, INV, "")
MESSAGE(inv_in_loop, "", WBL2 WAIT, STORE_FLAG, " sc1", LOAD_FLAG, " sc1", WAIT INV, "", "")
// Release without acquire and the other way round, for data that both sides treat as atomic.
MESSAGE(relaxed_atomic_data, " sc1", "", STORE_FLAG, " sc1", LOAD_FLAG, " sc1", WAIT, "", " sc1")

// The producer's side is wrong.
MESSAGE(no_write_back, "", WAIT, STORE_FLAG, " sc1", LOAD_FLAG, " sc1", WAIT, INV, "")
MESSAGE(write_back_of_workgroup, "", "buffer_wbl2 sc0\n" WAIT, STORE_FLAG, " sc1", LOAD_FLAG,
        " sc1", WAIT, INV, "")
MESSAGE(write_back_not_waited, "", WBL2, STORE_FLAG, " sc1", LOAD_FLAG, " sc1", WAIT, INV, "")
MESSAGE(wait_before_write_back, "", WAIT WBL2, STORE_FLAG, " sc1", LOAD_FLAG, " sc1", WAIT, INV, "")
MESSAGE(wait_too_weak, "", WBL2 "s_waitcnt vmcnt(1)\n", STORE_FLAG, " sc1", LOAD_FLAG, " sc1", WAIT,
        INV, "")
MESSAGE(through_not_waited, " sc1", "", STORE_FLAG, " sc1", LOAD_FLAG, " sc1", WAIT, INV, "")
MESSAGE(through_of_workgroup, " sc0", WAIT, STORE_FLAG, " sc1", LOAD_FLAG, " sc1", WAIT, INV, "")
MESSAGE(flag_not_through, "", WBL2 WAIT, STORE_FLAG, "", LOAD_FLAG, " sc1", WAIT, INV, "")
MESSAGE(atomic_not_waited, "", WBL2, ADD_FLAG, "", FETCH_FLAG, "", WAIT, INV, "")
// The consumer's side is wrong.
MESSAGE(no_invalidate, "", WBL2 WAIT, STORE_FLAG, " sc1", LOAD_FLAG, " sc1", WAIT, "", "")
MESSAGE(invalidate_of_workgroup, "", WBL2 WAIT, STORE_FLAG, " sc1", LOAD_FLAG, " sc1", WAIT,
        "buffer_inv sc0\n", "")
MESSAGE(invalidate_before_wait, "", WBL2 WAIT, STORE_FLAG, " sc1", LOAD_FLAG, " sc1", INV WAIT, "",
        "")
MESSAGE(poll_of_workgroup, "", WBL2 WAIT, STORE_FLAG, " sc1", LOAD_FLAG, " sc0", WAIT, INV, "")
MESSAGE(poll_plain, "", WBL2 WAIT, STORE_FLAG, " sc1", LOAD_FLAG, "", WAIT, INV, "")
MESSAGE(sc1_load_of_plain_data, "", WAIT, STORE_FLAG, " sc1", LOAD_FLAG, " sc1", WAIT, INV, " sc1")
MESSAGE(atomics_no_invalidate, "", WBL2 WAIT, ADD_FLAG, "", FETCH_FLAG, "", WAIT, "", "")

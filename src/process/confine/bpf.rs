//! The instructions of a seccomp filter.

/// Loads the 32 bits at this offset of `struct seccomp_data`.
pub(super) const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
pub(super) const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
pub(super) const AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
pub(super) const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// The offset of the number of the system call in `struct seccomp_data`.
pub(super) const NUMBER: u32 = 0;
/// The offset of the second argument; both supported architectures are little-endian, so the low half comes first.
pub(super) const SECOND_ARGUMENT: u32 = 24;

/// One instruction. `k`: the offset, the number to compare with, or the result. `jt`, `jf`: how many instructions are
/// skipped if the comparison holds, and if it does not.
pub(super) fn line(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter {
        // All BPF codes fit into 16 bits.
        code: (code & 0xffff) as u16,
        jt,
        jf,
        k,
    }
}

// Far transfers that stay in user mode: within a function, to another one, and a call with its return.
#include <stdio.h>
long far_ret(long x), far_ret_away(long x), iret_here(long x), iret_away(long x), far_jump(long x), far_jump_away(long x), far_call(long x);
#define FUNCTION(name, ...) ".type " #name ",@function\n" #name ":\n" __VA_ARGS__ "\n.size " #name ",.-" #name "\n"
#define PUSH_TARGET(to) "mov %cs, %eax\n push %rax\n lea " to "(%rip), %rcx\n push %rcx\n"
#define PUSH_FRAME(to) "mov %rsp, %rdx\n mov %ss, %eax\n push %rax\n push %rdx\n pushfq\n" PUSH_TARGET(to)
__asm__(".text\n"
        FUNCTION(add_one, "lea 1(%rdi), %rax\n ret")
        FUNCTION(add_far, "lea 1(%rdi), %rax\n lretq")
        FUNCTION(far_ret, PUSH_TARGET("1f") "lretq\n ud2\n 1: lea 1(%rdi), %rax\n ret")
        FUNCTION(far_ret_away, PUSH_TARGET("add_one") "lretq")
        FUNCTION(iret_here, PUSH_FRAME("1f") "iretq\n ud2\n 1: lea 1(%rdi), %rax\n ret")
        FUNCTION(iret_away, PUSH_FRAME("add_one") "iretq")
        FUNCTION(far_jump, PUSH_TARGET("1f") "rex.w ljmp *(%rsp)\n ud2\n 1: add $16, %rsp\n lea 1(%rdi), %rax\n ret")
        FUNCTION(far_jump_away, PUSH_TARGET("2f") "rex.w ljmp *(%rsp)")
        FUNCTION(drop, "2: add $16, %rsp\n lea 1(%rdi), %rax\n ret")
        FUNCTION(far_call, PUSH_TARGET("add_far") "rex.w lcall *(%rsp)\n add $16, %rsp\n ret"));
__attribute__((noinline)) static long round_of(long x) {
  return far_ret(x) + far_ret_away(x) + iret_here(x) + iret_away(x) + far_jump(x) + far_jump_away(x) + far_call(x);
}
int main(void) {
  long sum = 0;
  for (int i = 0; i < 100; i++) sum += round_of(i);
  printf("%ld\n", sum);
  return 0;
}

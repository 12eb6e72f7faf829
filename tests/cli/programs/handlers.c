// An interpreter whose handlers call one another, and themselves, in tail calls; and a loop whose first instruction is that of its function.
#include <stdio.h>

typedef struct {
  long value;
  int rounds;
} State;

typedef long (*Handler)(State*, const unsigned char*);
extern const Handler handlers[4];
static long added, multiplied, began;

#define NEXT return handlers[*code](state, code + 1)

__attribute__((noinline)) long handle_add(State* state, const unsigned char* code) {
  ++added;
  state->value += 3;
  NEXT;
}

__attribute__((noinline)) long handle_multiply(State* state, const unsigned char* code) {
  ++multiplied;
  state->value = state->value * 5 % 1000003;
  NEXT;
}

__attribute__((noinline)) long handle_end(State* state, const unsigned char* code) {
  (void)code;
  return state->value;
}

static const unsigned char round_code[] = {0, 1, 0, 0, 1, 0, 0, 0, 2};

__attribute__((noinline)) long handle_round(State* state, const unsigned char* code) {
  static const unsigned char end[] = {3};
  code = --state->rounds == 0 ? end : round_code;
  NEXT;
}

const Handler handlers[4] = {handle_add, handle_multiply, handle_round, handle_end};

int count_down(int from);
__asm__(
    ".text\n.globl count_down\n.type count_down, @function\ncount_down:\n"
    "sub $1, %edi\njnz count_down\nmov %edi, %eax\nret\n.size count_down, . - count_down\n");

int main(void) {
  long sum = 0;
  for (int i = 1; i <= 30; ++i) {
    State state = {1, i};
    sum += handlers[2](&state, round_code) + count_down(i);
    ++began;
  }
  printf("handle_add %ld\nhandle_multiply %ld\ncount_down %ld\n", added, multiplied, began);
  return sum == 0;
}

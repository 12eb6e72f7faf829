// A recursive parser with a table of functions and an error path that unwinds by longjmp: indirect and mutual calls.
#include <ctype.h>
#include <setjmp.h>
#include <stdio.h>
static const char* at;
static jmp_buf failed;
static long expression(void);
static void fail(void) { longjmp(failed, 1); }
static long number(void) {
  long value = 0;
  if (!isdigit((unsigned char)*at)) fail();
  while (isdigit((unsigned char)*at)) value = value * 10 + (*at++ - '0');
  return value;
}
static long group(void) {
  if (*at != '(') return number();
  ++at;
  const long value = expression();
  if (*at++ != ')') fail();
  return value;
}
static long add(long a, long b) { return a + b; }
static long subtract(long a, long b) { return a - b; }
static long multiply(long a, long b) { return a * b; }
static long (*const kOperators[])(long, long) = {['+'] = add, ['-'] = subtract, ['*'] = multiply};
static long term(void) {
  long value = group();
  while (*at == '*') ++at, value = kOperators['*'](value, group());
  return value;
}
static long expression(void) {
  long value = term();
  while (*at == '+' || *at == '-') {
    const unsigned char op = (unsigned char)*at++;
    value = kOperators[op](value, term());
  }
  return value;
}
static long evaluate(const char* text) {
  at = text;
  if (setjmp(failed) != 0) return -1;
  return expression();
}
int main(void) {
  static const char* const kTexts[] = {"1+2*3", "(4+5)*(6-(7*8))", "((((9))))", "1+(2", "12*12-(3+x)", "1-2-3-4-5*6*7"};
  long sum = 0;
  for (int round = 0; round < 40; ++round) {
    for (unsigned i = 0; i < sizeof kTexts / sizeof *kTexts; ++i) sum += evaluate(kTexts[i]);
  }
  printf("%ld\n", sum);
  return 0;
}

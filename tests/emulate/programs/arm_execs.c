// Becomes the program ./next.
void _start(void) {
  register long number __asm__("x8") = 221;  // execve
  register const char* path __asm__("x0") = "./next";
  register char** words __asm__("x1") = 0;
  register char** variables __asm__("x2") = 0;
  __asm__ volatile("svc 0" : "+r"(path) : "r"(number), "r"(words), "r"(variables) : "memory");
  for (;;) {
  }
}

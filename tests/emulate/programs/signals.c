// Signals of all kinds: timers, faults, traps, and jumps out of their handlers.
#include <signal.h>
#include <setjmp.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/time.h>
static volatile int alarms, faults; static sigjmp_buf out;
static void on_alarm(int s){(void)s;alarms++;}
static void on_segv(int s, siginfo_t*i, void*c){(void)s;(void)i;(void)c;faults++;siglongjmp(out,1);}
static void on_fpe(int s){(void)s;faults+=100;siglongjmp(out,1);}
static void on_trap(int s){(void)s;faults+=10000;}
static void on_ill(int s){(void)s;faults+=1000000;siglongjmp(out,1);}
int main(){struct sigaction a={0};a.sa_handler=on_alarm;sigaction(SIGALRM,&a,0);a.sa_sigaction=on_segv;a.sa_flags=SA_SIGINFO;sigaction(SIGSEGV,&a,0);
a.sa_flags=0;a.sa_handler=on_fpe;sigaction(SIGFPE,&a,0);a.sa_handler=on_trap;sigaction(SIGTRAP,&a,0);a.sa_handler=on_ill;sigaction(SIGILL,&a,0);
struct itimerval t={{0,2000},{0,2000}};setitimer(ITIMER_REAL,&t,0);
volatile unsigned long x=1;while(alarms<20){for(int i=0;i<1000;i++)x=x*3+i;}
for(int i=0;i<5;i++){ if(!sigsetjmp(out,1)){volatile int*p=(int*)8;x+=7;*p=1;x+=9;} 
if(!sigsetjmp(out,1)){volatile int z=0;x+=3;x/=z;x+=4;}
__asm__ volatile("int3");
if(!sigsetjmp(out,1)){__asm__ volatile("ud2");}
kill(getpid(),SIGALRM);}
printf("%d %d\n",alarms>=20,faults);return 0;}

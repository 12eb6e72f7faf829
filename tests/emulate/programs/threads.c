// Four threads that share a lock and a sum.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static volatile long sum; static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static int fib(int n){return n<2?n:fib(n-1)+fib(n-2);}
static void*run(void*p){long id=(long)p;for(int i=0;i<20;i++){int f=fib(10+(i+id)%8);pthread_mutex_lock(&m);sum+=f;pthread_mutex_unlock(&m);}return 0;}
int main(){pthread_t t[4];for(long i=0;i<4;i++)pthread_create(&t[i],0,run,(void*)i);for(int i=0;i<4;i++)pthread_join(t[i],0);printf("%ld\n",sum);return 0;}

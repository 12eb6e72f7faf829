# A 32-bit program without a C library: calls, a page fault, system calls, 64-bit code between, code in a segment of its own. Exits with 7.
# Most instructions have another length as 64-bit code: 0x40 to 0x4f are REX prefixes there.
	.data
back:	.long in32
	.word 0x23
text:	.ascii "32\n"
	.balign 4
own_code:	.long 0, 0, 0xfffff, 0x55  # struct user_desc: entry 0, base, limit; 32-bit, code, limit in pages, usable

	.bss
	.lcomm room, 0x4000

	.text
	.globl _start
_start:
	.code32
	mov $1000, %ebx
1:	call count
	dec %ebx
	jnz 1b
	incl room + 0x2000
	ljmp $0x33, $in64

	.code64
in64:	inc %r8
	mov $100, %ecx
2:	dec %ecx
	jnz 2b
	ljmp *back(%rip)

	.code32
in32:	mov $123, %eax  # modify_ldt(1, &own_code, 16)
	mov $1, %ebx
	mov $own_code, %ecx
	mov $16, %edx
	int $0x80
	lcall $0x7, $own
	mov $4, %eax  # write(1, text, 3)
	mov $1, %ebx
	mov $text, %ecx
	mov $3, %edx
	int $0x80
	mov $1, %eax  # exit(7)
	mov $7, %ebx
	int $0x80

	.type count, @function
count:
	inc %ecx
	dec %edx
	ret
	.size count, . - count

own:	inc %ecx
	lret

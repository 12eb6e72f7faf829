// The hand-written kernel of the demonstration. Names and order of calls follow Linux 6.1 on x86; the code is our own.
#include "tests/demo/kernel.h"

namespace ptd::demo {
namespace {

constexpr const char* kMovRax = "48 c7 c0";  // + imm32: mov $imm,%rax
constexpr const char* kCallRax = "ff d0";

// Entries. A handler saves what it uses; the flags come back with IRET.
void add_entries(Assembler& a) {
  a.function("asm_exc_int3");
  a.bytes("50 51");  // push %rax; push %rcx
  a.call("exc_int3");
  a.bytes("59 58 48 cf");  // pop; pop; iretq

  a.function("exc_int3");
  a.enter();
  a.call("poke_int3_handler");
  a.leave();

  a.function("poke_int3_handler");  // sets the frame's ip: the runner does it at .emulate
  a.bytes("0f 1f 00");
  a.label("poke_int3_handler.emulate");
  a.bytes("90 c3");

  a.function("asm_sysvec_call_function");
  a.bytes("50 51");
  a.call("sysvec_call_function");
  a.bytes("59 58 48 cf");

  a.function("sysvec_call_function");
  a.enter();
  a.absolute(kMovRax, "do_sync_core");
  a.bytes(kCallRax);
  a.absolute("c7 04 25", "data.call_pending");
  a.bytes("00 00 00 00");
  a.leave();

  // IRET to the next instruction serialises.
  a.function("do_sync_core");
  a.enter();
  a.bytes("48 89 e0 6a 18 50 9c 6a 10");  // mov %rsp,%rax; push $0x18; push %rax; pushf; push $0x10
  a.absolute("68", "do_sync_core.resume");
  a.bytes("48 cf");
  a.label("do_sync_core.resume");
  a.leave();
}

// text_poke and its parts.
void add_poking(Assembler& a) {
  a.function("text_poke");
  a.enter();
  a.label("text_poke.map");  // takes long: a temporary address space, and its flush
  a.bytes("0f 1f 00");
  a.label("text_poke.write");
  a.bytes("90");
  a.leave();

  a.function("text_poke_sync");
  a.enter();
  a.label("text_poke_sync.send");
  a.absolute("c7 04 25", "data.call_pending");
  a.bytes("01 00 00 00");
  a.absolute(kMovRax, "do_sync_core");
  a.bytes(kCallRax);
  a.label("text_poke_sync.wait");
  a.bytes("f3 90");
  a.absolute("83 3c 25", "data.call_pending");
  a.bytes("00");
  a.if_not_zero("text_poke_sync.wait");
  a.leave();

  a.function("perf_event_text_poke");
  a.enter();
  a.absolute(kMovRax, "perf_event_text_poke_output");
  a.bytes(kCallRax);
  a.leave();

  a.function("perf_event_text_poke_output");
  a.enter();
  a.label("perf_event_text_poke_output.write");
  a.bytes("90");
  a.leave();

  a.function("perf_event_ksymbol");
  a.enter();
  a.label("perf_event_ksymbol.write");
  a.bytes("90");
  a.leave();

  a.function("text_poke_bp_batch");
  a.enter();
  for (const char* phase : {"int3", "tail", "first"}) {
    const std::string loop = std::string("text_poke_bp_batch.") + phase;
    a.label(loop);
    a.call("text_poke");
    if (phase == std::string("tail")) a.call("perf_event_text_poke");
    a.absolute("83 3c 25", "data.more_pokes");
    a.bytes("00");
    a.if_not_zero(loop);
    a.call("text_poke_sync");
  }
  a.leave();

  a.function("synchronize_rcu_tasks");
  a.enter();
  a.label("synchronize_rcu_tasks.start");
  a.absolute("c7 04 25", "data.grace_pending");
  a.bytes("01 00 00 00");
  a.label("synchronize_rcu_tasks.wait");
  a.bytes("f3 90");
  a.absolute("83 3c 25", "data.grace_pending");
  a.bytes("00");
  a.if_not_zero("synchronize_rcu_tasks.wait");
  a.leave();
}

// Each calls its steps in the kernel's order.
void add_users_of_poking(Assembler& a) {
  const struct {
    const char* name;
    std::vector<const char*> calls;
  } users[] = {
      {"arch_jump_label_transform_apply", {"text_poke_bp_batch"}},
      {"arch_static_call_transform", {"text_poke_bp_batch"}},
      {"ftrace_startup", {"perf_event_ksymbol", "perf_event_text_poke", "synchronize_rcu_tasks", "text_poke_bp_batch"}},
      {"ftrace_shutdown", {"text_poke_bp_batch", "synchronize_rcu_tasks", "perf_event_text_poke", "perf_event_ksymbol"}},
      {"arch_arm_kprobe",
       {"perf_event_ksymbol", "perf_event_text_poke", "synchronize_rcu_tasks", "text_poke", "text_poke_sync", "perf_event_text_poke"}},
      {"arch_prepare_optimized_kprobe", {"perf_event_ksymbol", "perf_event_text_poke"}},
      {"arch_optimize_kprobes", {"synchronize_rcu_tasks", "text_poke_bp_batch"}},
      {"arch_unoptimize_kprobe", {"text_poke", "text_poke_sync", "text_poke", "text_poke_sync", "perf_event_text_poke"}},
      {"arch_disarm_kprobe",
       {"perf_event_text_poke", "text_poke", "text_poke_sync", "synchronize_rcu_tasks", "perf_event_ksymbol", "perf_event_ksymbol"}},
  };
  for (const auto& user : users) {
    a.function(user.name);
    a.enter();
    for (const char* callee : user.calls) a.call(callee);
    a.leave();
  }
}

// Handlers reached from patched sites. %ebx is the worker's random number.
void add_handlers(Assembler& a) {
  a.function("trace_event_raw_event_demo");
  a.bytes("51 b9 03 00 00 00");  // push %rcx; mov $3,%ecx
  a.label("trace_event_raw_event_demo.loop");
  a.bytes("69 db 0d 66 19 00 ff c9");  // imul $1664525,%ebx,%ebx; dec %ecx
  a.if_not_zero("trace_event_raw_event_demo.loop");
  a.bytes("59 c3");

  a.function("function_trace_call");
  a.bytes("f7 c3 00 00 10 00");  // test $0x100000,%ebx
  a.if_zero("function_trace_call.out");
  a.bytes("81 c3 07 00 00 00");
  a.label("function_trace_call.out");
  a.bytes("c3");

  a.function("function_stack_trace_call");
  a.bytes("51 b9 04 00 00 00");
  a.label("function_stack_trace_call.loop");
  a.call("function_trace_call");
  a.bytes("ff c9");
  a.if_not_zero("function_stack_trace_call.loop");
  a.bytes("59 c3");

  a.function("optimized_callback");
  a.enter();
  a.bytes("81 c3 0b 00 00 00");
  a.leave();
}

// The thread switch: its two records are written by prepare_ and finish_task_switch.
void add_scheduler(Assembler& a) {
  a.function("schedule");
  a.enter();
  a.call("prepare_task_switch");
  a.call("__switch_to_asm");
  a.label("schedule.resume");
  a.call("finish_task_switch");
  a.leave();

  a.function("prepare_task_switch");
  a.label("prepare_task_switch.write");
  a.bytes("90 c3");

  a.function("__switch_to_asm");
  a.bytes("55 53");  // push %rbp; push %rbx
  a.label("__switch_to_asm.swap");
  a.bytes("48 89 f4 5b 5d");  // mov %rsi,%rsp; pop %rbx; pop %rbp
  a.jump("__switch_to");

  a.function("__switch_to");
  a.nop5();
  a.bytes("90 c3");

  a.function("finish_task_switch");
  a.bytes("90 90");
  a.label("finish_task_switch.write");
  a.bytes("90 c3");

  a.function("kthread");
  a.enter();
  a.absolute(kMovRax, "demo_worker");
  a.bytes(kCallRax);
  a.label("kthread.out");
  a.leave();
}

// The module whose code is patched: a loop over one site of each kind.
void add_module(Assembler& a) {
  a.function("demo_worker");
  a.enter();
  a.label("demo_worker.loop");
  a.bytes("b9 03 00 00 00");  // mov $3,%ecx
  a.label("demo_worker.inner");
  a.bytes("69 db 0d 66 19 00 81 c3 5f f3 6e 3c");  // the next random number
  a.call("hot_keys");
  a.call("hot_static_call");
  a.call("hot_traced");
  a.call("hot_probed");
  a.bytes("ff c9");
  a.if_not_zero("demo_worker.inner");
  a.label("demo_worker.next_work");  // the runner sets %rax and the flag
  a.bytes("65 83 3c 25 10 00 00 00 00");
  a.if_zero("demo_worker.loop");
  a.bytes("65 c7 04 25 10 00 00 00 00 00 00 00");
  a.bytes(kCallRax);
  a.relative("eb", "demo_worker.loop", 1);

  a.function("hot_keys");  // a static key and a tracepoint
  a.enter();
  a.label("hot_keys.key_site");
  a.nop5();
  a.label("hot_keys.key_back");
  a.bytes("f7 c3 00 00 01 00");
  a.if_zero("hot_keys.trace_site");
  a.bytes("81 c3 05 00 00 00");
  a.label("hot_keys.trace_site");
  a.nop5();
  a.label("hot_keys.trace_back");
  a.leave();
  a.label("hot_keys.key_slow");
  a.bytes("f7 c3 00 00 08 00");
  a.if_not_zero("hot_keys.key_slow_out");
  a.bytes("69 db 11 00 00 00");
  a.label("hot_keys.key_slow_out");
  a.jump("hot_keys.key_back");
  a.label("hot_keys.trace_slow");
  a.call("trace_event_raw_event_demo");
  a.jump("hot_keys.trace_back");

  a.function("hot_static_call");
  a.enter();
  a.label("hot_static_call.site");
  a.call("choice_first");
  a.leave();

  a.function("choice_first");
  a.bytes("81 c3 03 00 00 00 c3");
  a.function("choice_second");
  a.bytes("f7 c3 00 00 04 00");
  a.if_zero("choice_second.out");
  a.bytes("81 c3 09 00 00 00");
  a.label("choice_second.out");
  a.bytes("c3");
  a.function("choice_third");
  a.bytes("51 b9 02 00 00 00");
  a.label("choice_third.loop");
  a.bytes("69 db 2b 00 00 00 ff c9");
  a.if_not_zero("choice_third.loop");
  a.bytes("59 c3");

  a.function("hot_traced");
  a.label("hot_traced.fentry");
  a.nop5();
  a.bytes("f7 c3 00 00 40 00");
  a.if_not_zero("hot_traced.out");
  a.bytes("69 db 1f 00 00 00");
  a.label("hot_traced.out");
  a.bytes("c3");

  a.function("hot_probed");
  a.label("hot_probed.probe");
  a.bytes("55 48 89 e5 90");
  a.label("hot_probed.behind");
  a.bytes("f7 c3 00 00 02 00");
  a.if_zero("hot_probed.out");
  a.bytes("81 c3 0d 00 00 00");
  a.label("hot_probed.out");
  a.leave();
}

std::vector<std::byte> with_distance(uint8_t opcode, uint64_t site, uint64_t target) {
  std::vector<std::byte> out = {std::byte{opcode}};
  uint64_t distance = target - site - 5;
  for (int i = 0; i < 4; ++i, distance >>= 8) out.push_back(static_cast<std::byte>(distance & 0xff));
  return out;
}

}  // namespace

std::vector<std::byte> call_to(uint64_t site, uint64_t target) { return with_distance(0xe8, site, target); }
std::vector<std::byte> jump_to(uint64_t site, uint64_t target) { return with_distance(0xe9, site, target); }
std::vector<std::byte> nop5() { return from_hex("0f 1f 44 00 00"); }

bool build_kernel(Kernel& kernel) {
  kernel.labels = {{"data.call_pending", kCallPending}, {"data.more_pokes", kMorePokes}, {"data.grace_pending", kGracePending}};
  Assembler text(kTextBase, kernel.labels), module(kModuleBase, kernel.labels);
  text.label("_text");
  text.label("_stext");
  text.bytes("f3 90");
  add_entries(text);
  add_poking(text);
  add_users_of_poking(text);
  add_handlers(text);
  add_scheduler(text);
  kernel.labels["_etext"] = kTextBase + kTextBytes;
  add_module(module);
  if (!text.link() || !module.link() || text.code().size() > kTextBytes || module.code().size() > kModuleBytes) return false;
  text.pad_to(kTextBytes);
  module.pad_to(kModuleBytes);
  kernel.text = {kTextBase, text.code()};
  kernel.module = {kModuleBase, module.code()};
  return true;
}

}  // namespace ptd::demo

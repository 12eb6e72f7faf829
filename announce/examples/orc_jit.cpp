// A program that compiles, runs and frees functions with LLVM's ORC JIT, and announces them.
// c++ $(llvm-config --cxxflags) -I.. orc_jit.cpp ptd_announce.o $(llvm-config --ldflags --libs) -o orc_jit; orc_jit [ROUNDS]
#include <cstdio>
#include <cstdlib>
#include <memory>

#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/ExecutionEngine/Orc/RTDyldObjectLinkingLayer.h>
#include <llvm/ExecutionEngine/SectionMemoryManager.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/TargetSelect.h>

#include "orc_announcer.h"

namespace {

using namespace llvm;

/// int f(int x): a chain of comparisons that differs from round to round.
std::unique_ptr<Module> make_module(LLVMContext& context, int round) {
  auto module = std::make_unique<Module>("m", context);
  IRBuilder<> builder(context);
  Type* const number = builder.getInt32Ty();
  auto* const function = Function::Create(FunctionType::get(number, {number}, false), Function::ExternalLinkage, "f", *module);
  auto* const done = BasicBlock::Create(context, "done", function);
  builder.SetInsertPoint(BasicBlock::Create(context, "entry", function, done));
  Value* value = function->getArg(0);
  for (int i = 0; i < 2 + round % 7; ++i) {
    auto* const next = BasicBlock::Create(context, "next", function, done);
    auto* const other = BasicBlock::Create(context, "other", function, done);
    builder.CreateCondBr(builder.CreateICmpSGT(value, builder.getInt32(round * 3 + i * 5)), next, other);
    builder.SetInsertPoint(other);
    builder.CreateRet(builder.getInt32(i));
    builder.SetInsertPoint(next);
    value = builder.CreateMul(builder.CreateAdd(value, builder.getInt32(round % 5 + i)), function->getArg(0));
  }
  builder.CreateBr(done);
  builder.SetInsertPoint(done);
  builder.CreateRet(value);
  return module;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  InitializeNativeTarget();
  InitializeNativeTargetAsmPrinter();
  OrcAnnouncer announcer;
  ExitOnError check("orc_jit: ");
  auto jit = check(orc::LLJITBuilder()
                       .setObjectLinkingLayerCreator([&](orc::ExecutionSession& session, const Triple&) -> Expected<std::unique_ptr<orc::ObjectLayer>> {
                         auto layer = std::make_unique<orc::RTDyldObjectLinkingLayer>(session, [] { return std::make_unique<SectionMemoryManager>(); });
                         layer->registerJITEventListener(announcer);
                         return std::unique_ptr<orc::ObjectLayer>(std::move(layer));
                       })
                       .create());
  unsigned sum = 0;
  for (int round = 0; round < rounds; ++round) {
    auto context = std::make_unique<LLVMContext>();
    auto module = make_module(*context, round);
    auto tracker = jit->getMainJITDylib().createResourceTracker();
    check(jit->addIRModule(tracker, orc::ThreadSafeModule(std::move(module), std::move(context))));
#if LLVM_VERSION_MAJOR < 15
    const auto f = reinterpret_cast<int (*)(int)>(check(jit->lookup("f")).getAddress());
#else
    const auto f = check(jit->lookup("f")).toPtr<int (*)(int)>();
#endif
    for (int x = -3; x < 60; ++x) sum += static_cast<unsigned>(f(x));
    check(tracker->remove());  // frees the code, whose memory is used again
  }
  std::printf("%u\n", sum);
  return 0;
}

// Counts of code by context: see context_counter.h.
#include "analysis/paths/context_counter.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "analysis/frame_search.h"
#include "decoder/insn/executed_insn.h"
#include "ptdecode/guest.h"
#include "ptdecode/insn.h"
#include "ptdecode/likeliest_time.h"

namespace ptd {
namespace {

constexpr size_t kMaxFrames = 1U << 16;

uint64_t context_key(uint32_t context, NodeId node) { return (uint64_t{context} << 32 | node) + 1; }

// [LLVM] "DebugInfoMetadata.h", getBaseDiscriminatorFromDiscriminator(): its part of a discriminator that distinguishes code of one line.
uint32_t base_discriminator(uint32_t discriminator) {
  if ((discriminator & 1) != 0) return 0;
  discriminator >>= 1;
  return (discriminator & 0x20) != 0 ? ((discriminator >> 1) & 0xfe0) | (discriminator & 0x1f) : discriminator & 0x1f;
}

ContextProfile::Line line_of(const ProfileFrame& frame) { return {frame.line_offset & 0xffff, base_discriminator(frame.discriminator)}; }

// "main:3.1": a call in a context.
std::string frame_text(const ProfileFrame& frame) {
  const auto [offset, discriminator] = line_of(frame);
  std::string text = std::string(frame.function) + ":" + std::to_string(offset);
  if (discriminator != 0) text += "." + std::to_string(discriminator);
  return text + " @ ";
}

// "main:3 @ outer:1.2 @ ": the calls of `frames`, outermost first, without the `skipped` innermost ones.
std::string calls_text(std::span<const ProfileFrame> frames, size_t skipped) {
  std::string text;
  for (size_t i = frames.size(); i-- > skipped;) text += frame_text(frames[i]);
  return text;
}

// Returns at least the length of calls_text().
uint64_t most_text_bytes(std::span<const ProfileFrame> frames) {
  constexpr uint64_t kMostNumberBytes = 24;  // ":65535.4294967295 @ "
  uint64_t bytes = 0;
  for (const ProfileFrame& frame : frames) bytes += frame.function.size() + kMostNumberBytes;
  return bytes;
}

}  // namespace

ContextCounter::ContextCounter(const Recording& recording, const CodeCountOptions& options, FunctionTable& functions)
    : recording_(recording), options_(options), finder_(recording.symbolizer(), recording.timeline(), functions) {}

uint32_t ContextCounter::intern(const Frames& frames) {
  const auto is_odd = [](const ProfileFrame& frame) { return frame.function.find_first_of(" :@[]\n") != std::string_view::npos; };
  if (frames.empty() || most_text_bytes(frames) > kMostContextBytes) return 0;
  if (std::any_of(frames.begin(), frames.end(), is_odd)) return 0;  // the format has no such names
  std::vector<std::pair<std::string_view, std::pair<uint32_t, uint32_t>>> id;
  for (const ProfileFrame& frame : frames) id.emplace_back(frame.function, std::pair(frame.line_offset, frame.discriminator));
  const auto [known, is_new] = frame_ids_.try_emplace(std::move(id), static_cast<uint32_t>(frames_.size()));
  if (is_new) frames_.push_back(frames);
  return known->second;
}

ContextCounter::Node& ContextCounter::node(NodeId id) {
  if (id >= nodes_.size()) nodes_.resize(std::max<size_t>(id + 1, nodes_.size() * 2));
  Node& node = nodes_[id];
  if (node.known) return node;
  const BlockInfo& info = blocks_->info(id);
  const BranchCode code = branch_code(info, blocks_->bytes(id));
  node.known = true;
  node.ip = info.ip;
  node.next = code.next;
  node.way = code.way;
  node.indirect = code.indirect;
  find_function(node, info.space);
  find_places(info, node);
  if ((code.way == Way::call || code.way == Way::call_direct || code.way == Way::jump) && node.count != 0)
    node.site = places_.back().frames;
  if (code.way == Way::call || code.way == Way::call_direct)
    node.landing = recording_.symbolizer().landing_of(info.space, Ip{node.next.value - 1}, cursor_.now()).value_or(Ip{});
  return node;
}

void ContextCounter::find_function(Node& node, SpaceId space) {
  const FoundFunction found = finder_.find(space, node.ip, cursor_.now());
  node.function = found.id;
  node.entry = found.entry;
  node.named = found.named;
  node.saves = found.entry && finder_.is_setjmp(found.id);
  node.lands = !found.entry && recording_.symbolizer().is_landing(space, node.ip, cursor_.now());
  node.own = intern(recording_.symbolizer().profile_frames_at(space, node.ip, cursor_.now()));
}

void ContextCounter::find_places(const BlockInfo& info, Node& node) {
  const Symbolizer& symbolizer = recording_.symbolizer();
  const Bytes bytes{info.first_byte, info.size_bytes};
  node.first = static_cast<uint32_t>(places_.size());
  for (size_t offset = 0; offset < bytes.size();) {
    const Ip ip = info.ip + offset;
    offset += std::max<size_t>(1, executed_insn(bytes.subspan(offset), info.mode).length_bytes);
    const auto place = symbolizer.file_place(info.space, ip, cursor_.now());
    if (!place) continue;
    const uint32_t file = files_.try_emplace({place->path, place->build_id}, static_cast<uint32_t>(files_.size())).first->second;
    places_.push_back({place->address, file, intern(symbolizer.profile_frames_at(info.space, ip, cursor_.now()))});
  }
  node.count = static_cast<uint32_t>(places_.size() - node.first);
}

// Returns the context of `callee`, which has lines.
uint32_t ContextCounter::context(Site from, const Node& callee) {
  const std::string_view function = frames_[callee.own].back().function;
  const bool is_deep = from.tails > kMostTailCalls || contexts_[from.caller].depth >= kMostDepth;
  if (from.caller == 0 || from.site == 0 || is_deep || contexts_.size() >= kMostContexts) from = {};
  const Context& caller = contexts_[from.caller];
  if (from.caller != 0 && caller.site == from.site && caller.function == function) return from.caller;  // it calls itself
  if (const auto known = context_ids_.find({from.caller, from.site, function}); known != context_ids_.end()) return known->second;
  const uint64_t bytes = from.caller == 0 ? 0 : caller.text_bytes + most_text_bytes(frames_[from.site]);
  if (bytes > std::min(kMostContextBytes, kMostTextBytes - text_bytes_)) return context({}, callee);
  text_bytes_ += bytes;
  context_ids_.emplace(std::tuple(from.caller, from.site, function), static_cast<uint32_t>(contexts_.size()));
  contexts_.push_back({from, caller.depth + 1, function, 0, 0, bytes});
  return static_cast<uint32_t>(contexts_.size() - 1);
}

void ContextCounter::enter(const Site& from, const Node& here) {
  if (here.own == 0) return void(where_ = {0, from});
  enter_context(context(from, here), from, here);
}

// The function of context `id` is entered from a place that may be another than that where its context begins.
void ContextCounter::enter_context(uint32_t id, const Site& from, const Node& here) {
  where_ = {id, {}};
  if (!here.entry) return;
  Context& context = contexts_[id];
  ++context.entries;
  if (from.caller == 0 || from.site == 0) return;
  ++(context.caller == from.caller && context.site == from.site ? context.calls : other_calls_[{from.caller, from.site, context.function}]);
}

// The flow has jumped to another function.
void ContextCounter::take_jump(const Node& from, const Node& here) {
  if (!here.entry && here.own != 0) return enter({}, here);
  const Site tail = where_.context == 0 ? where_.from : Site{where_.context, from.site, contexts_[where_.context].tails + 1};
  for (uint32_t at = here.own == 0 || tail.tails == 0 ? 0 : tail.caller; at != 0;
       at = contexts_[at].tails == 0 ? 0 : contexts_[at].caller) {
    if (contexts_[at].function == frames_[here.own].back().function) return enter_context(at, tail, here);
  }
  enter(tail, here);
}

void ContextCounter::push(const Pending& open, bool far) {
  if (stack_.size() >= kMaxFrames) {
    stack_.erase(stack_.begin(), stack_.begin() + kMaxFrames / 2);
    saved_.drop_ended([](size_t, uint64_t) { return false; });
  }
  stack_.push_back({open.return_to, open.landing, where_, function_, far, ++frames_made_});
}

// The flow goes on in the function inside of the first `depth` frames.
void ContextCounter::leave_to(size_t depth) {
  where_ = stack_[depth].where;
  function_ = stack_[depth].function;
  stack_.resize(depth);
}

bool ContextCounter::return_to(Ip ip) {
  const size_t match = search_.innermost(stack_, [ip](const Frame& frame) { return frame.return_to == ip; });
  if (match != 0) leave_to(match - 1);
  return match != 0;
}

void ContextCounter::drop_ended() {
  saved_.drop_ended([this](size_t depth, uint64_t of) { return depth <= stack_.size() && number(depth) == of; });
}

// The innermost call is one of setjmp.
void ContextCounter::save_place() {
  if (stack_.empty() || stack_.back().return_to.value == 0) return;
  drop_ended();
  saved_.save(stack_.size() - 1, number(stack_.size() - 1), stack_.back().return_to);
}

// An exception or longjmp may have led here: then calls end that never return. Returns false if the flow goes on in no open function.
bool ContextCounter::unwind(const Node& here) {
  const auto lands = [&](const Frame& frame) { return frame.landing == here.ip; };
  if (const size_t match = here.lands ? search_.innermost(stack_, lands, kMostGroupSteps) : 0; match != 0) return leave_to(match - 1), true;
  if (here.entry || !here.named || here.function == function_) return false;
  const auto is_open = [&](const Frame& frame) { return frame.function == here.function; };
  size_t open = search_.innermost(stack_, is_open);
  if (open == 0) return false;
  drop_ended();
  SavedPlaces::Found found;
  const auto is_open_at = [&](size_t depth) { return depth < stack_.size() && is_open(stack_[depth]); };
  if (!is_kernel_half(here.ip) && saved_.take(here.ip, stack_.size(), is_open_at, found)) open = found.depth + 1;
  leave_to(open - 1);
  return true;
}

// The flow goes on in the function that jumped to the one that runs, at no return address that a CALL has pushed: see CallFlow::go_back().
bool ContextCounter::go_back(const Node& here) {
  if (here.entry || here.lands || here.function != left_.function || left_.number != number(stack_.size())) return false;
  if (!finder_.is_indirect_thunk(function_) && finder_.follows_call(space_, here.ip, cursor_.context().mode, cursor_.now())) return false;
  where_ = left_.where;
  function_ = left_.function;
  left_ = {};
  return true;
}

void ContextCounter::take_return(const Node& here, bool retpoline) {
  if (go_back(here)) return;
  if ((here.lands && unwind(here)) || return_to(here.ip)) return;
  if (retpoline && here.entry && here.function != function_) {
    take_jump({}, here);
    function_ = here.function;
  }
  if (here.function == function_ || here.entry) return;  // a computed jump, as of a retpoline
  if (!stack_.empty() && stack_.back().far) return;      // a signal's handler ends
  if (!unwind(here)) stack_.clear();
}

// The kernel returns, or the handler of an interrupt within it, or user code jumps.
void ContextCounter::take_far_return(const Pending& open, const Node& here) {
  if (return_to(here.ip) || here.function == function_) return;
  if (stays_in_user_code(open.return_to, here.ip)) {
    if (unwind(here)) return;
    take_jump({}, here);
    function_ = here.function;
    return;
  }
  const bool to_user = !is_kernel_half(here.ip);
  const size_t match =
      search_.innermost(stack_, [&](const Frame& frame) { return frame.far && !(to_user && is_kernel_half(frame.return_to)); });
  if (match == 0) return stack_.clear();
  const Frame ended = stack_[match - 1];
  leave_to(match - 1);
  if (to_user) resume({Way::none, ended.return_to, ended.landing, 0}, here);
}

// Code that is not traced, as the kernel, goes on here in user code: where that was left, in the handler of a signal or another function
// that it calls, or where such a handler was entered.
void ContextCounter::resume(const Pending& left, const Node& here) {
  if (here.ip == left.return_to || return_to(here.ip) || is_restart(here.ip, left.return_to)) return;
  if (!here.entry) return void(unwind(here));
  push(left, true);
  enter({}, here);
  function_ = here.function;
}

void ContextCounter::take_pending(const Pending& open, const Node& here) {
  const bool retpoline = std::exchange(retpoline_, false);
  switch (open.way) {
    case Way::none:
      return resume(open, here);
    case Way::ret:
      return take_return(here, retpoline);
    case Way::far_ret:
      return take_far_return(open, here);
    default:
      break;
  }
  const bool far = open.way == Way::far_call;
  if (!far && open.return_to == here.ip) return;
  retpoline_ = open.way == Way::call_direct && here.function == function_ && !here.entry && here.named &&
               fills_return_stack(open.return_to, here.ip);
  if (retpoline_) return;
  const Site from = far ? Site{} : Site{where_.context, open.site, 0};
  push(open, far);
  enter(from, here);
  function_ = here.function;
}

// The flow is at the start of a block.
void ContextCounter::arrive(const Node& here) {
  const std::optional<NodeId> jump = std::exchange(jump_, std::nullopt);
  if (pending_) take_pending(*std::exchange(pending_, std::nullopt), here);
  const bool is_left = jump && nodes_[*jump].indirect && go_back(here);
  if (function_ != here.function && !is_left && !(jump && unwind(here))) {
    const Left left{function_, number(stack_.size()), where_};
    jump ? take_jump(nodes_[*jump], here) : enter({}, here);
    left_ = jump && here.entry ? left : Left{};
    function_ = here.function;
  }
  if (here.saves) save_place();
}

// A branch led here, but an interrupt came before the instruction.
void ContextCounter::arrive_at(Ip ip) {
  if (!pending_ && !jump_) return;
  Node here;
  here.ip = ip;
  find_function(here, space_at(space_, ip));
  if (pending_ || function_ != here.function) arrive(here);
}

void ContextCounter::lose() {
  stack_.clear();
  left_ = {};
  drop_ended();
  pending_.reset();
  jump_.reset();
  function_ = kNoFunction;
}

// Tracing stops, or an interrupt is taken.
void ContextCounter::stop(const Event& event) {
  const bool from_known = event.kind != EventKind::disabled && (event.flags & kEventHasFrom) != 0;
  if (from_known) arrive_at(event.from);
  jump_.reset();
  Pending left = pending_.value_or(Pending{});
  if (left.way == Way::ret && !stack_.empty() && stack_.back().far) {  // to code that is not traced, which called the function
    left.return_to = stack_.back().return_to;
    left.landing = stack_.back().landing;
    leave_to(stack_.size() - 1);
  } else if (from_known) {
    left.return_to = event.from;
    left.landing = recording_.symbolizer().landing_of(space_, event.from, cursor_.now()).value_or(Ip{});
  } else if (event.kind == EventKind::disabled && event.aux != 0) {
    left.return_to = Ip{event.aux};
  }
  left.way = event.kind == EventKind::async_branch && (event.flags & kEventHasTo) != 0 ? Way::far_call : Way::none;
  pending_ = left;
}

void ContextCounter::take_event(const Event& event) {
  switch (event.kind) {
    case EventKind::async_branch:
    case EventKind::async_disabled:
    case EventKind::disabled:
      return stop(event);
    case EventKind::overflow:
    case EventKind::tsx_abort:
      return lose();
    default:
      return;
  }
}

void ContextCounter::take(const Batch& batch, const BlockTable& blocks) {
  if (blocks_ != &blocks) put_away();
  blocks_ = &blocks;
  cursor_.begin(batch);
  for (FlowItem item = cursor_.next(); item != FlowItem::end; item = cursor_.next()) {
    if (item == FlowItem::gap) lose();
    if (item == FlowItem::event && wanted_) take_event(cursor_.event());
    if (item == FlowItem::mark) {
      Mark mark = cursor_.mark();
      mark.time_known = is_dated(mark);
      if (mark.time_known) mark.time.first = cursor_.now();
      if (mark.tid != tid_ || mark.space != space_) lose();
      tid_ = mark.tid;
      space_ = mark.space;
      const bool wanted = counts(options_, mark);
      if (wanted != wanted_) lose();
      wanted_ = wanted;
      finder_.set_process(mark.pid);
    }
    if (item != FlowItem::blocks || !wanted_) continue;
    for (const Block& block : cursor_.blocks()) {
      const Node& here = node(block.node);
      if (pending_ || function_ != here.function) arrive(here);
      if (where_.context != 0) ++counts_.count(context_key(where_.context, block.node));
      const bool taken = has(block.flags, BlockFlag::taken);
      jump_ = taken && here.way == Way::jump ? std::optional(block.node) : std::nullopt;
      if (taken && here.way != Way::none && here.way != Way::jump) pending_ = Pending{here.way, here.next, here.landing, here.site};
    }
  }
}

void ContextCounter::finish() {
  lose();
  put_away();
}

// Adds the counts of blocks to those of their instructions, and forgets the stream's blocks.
void ContextCounter::put_away() {
  for (const KeyCounts::Slot& slot : counts_.slots()) {
    if (slot.key == 0) continue;
    const auto context = static_cast<uint32_t>((slot.key - 1) >> 32);
    const Node& node = nodes_[static_cast<NodeId>(slot.key - 1)];
    for (uint32_t i = node.first; i < node.first + node.count; ++i) {
      Instruction& instruction = instructions_[{context, places_[i].file, places_[i].address}];
      instruction.frames = places_[i].frames;
      instruction.count += slot.count;
    }
  }
  counts_ = KeyCounts();
  jump_.reset();
  nodes_.clear();
  places_.clear();
}

// "main:3 @ outer:1 @ ": what comes before the functions of a context.
std::string ContextCounter::caller_text(uint32_t context) const {
  std::vector<uint32_t> sites;  // innermost first
  for (; contexts_[context].caller != 0; context = contexts_[context].caller) sites.push_back(contexts_[context].site);
  std::string text;
  for (auto site = sites.rbegin(); site != sites.rend(); ++site) text += calls_text(frames_[*site], 0);
  return text;
}

ContextProfiles ContextCounter::profiles() const {
  ContextProfiles profiles;
  uint64_t left = kMostTextBytes;
  const auto fits = [&left](uint64_t bytes) {
    if (bytes > left) return false;
    left -= bytes;
    return true;
  };
  // Returns the profile of a function called as `callers` says; that of all its other calls, or null, if there is too much text.
  const auto profile_of = [&](const std::string& callers, std::string_view function) -> ContextProfile* {
    for (const std::string& name : {callers + std::string(function), std::string(function)}) {
      if (profiles.contains(name) || fits(name.size())) return &profiles[name];
    }
    return nullptr;
  };
  std::vector<std::string> callers(contexts_.size());
  for (uint32_t id = 1; id < contexts_.size(); ++id) callers[id] = caller_text(id);
  const auto add_calls = [&](uint32_t from, uint32_t site_id, std::string_view function, uint64_t count) {
    const Frames& site = frames_[site_id];
    ContextProfile* const caller = profile_of(callers[from] + calls_text(site, 1), site.front().function);
    if (caller != nullptr && fits(function.size())) caller->calls[line_of(site.front())][std::string(function)] += count;
  };
  for (const auto& [place, instruction] : instructions_) {
    const Frames& frames = frames_[instruction.frames];
    if (frames.empty()) continue;
    ContextProfile* const profile = profile_of(callers[std::get<0>(place)] + calls_text(frames, 1), frames.front().function);
    if (profile == nullptr) continue;
    uint64_t& most = profile->lines[line_of(frames.front())];
    most = std::max(most, instruction.count);
  }
  for (uint32_t id = 1; id < contexts_.size(); ++id) {
    const Context& context = contexts_[id];
    if (context.entries == 0) continue;
    if (ContextProfile* const profile = profile_of(callers[id], context.function); profile != nullptr) profile->entries += context.entries;
    if (context.calls != 0) add_calls(context.caller, context.site, context.function, context.calls);
  }
  for (const auto& [call, count] : other_calls_) add_calls(std::get<0>(call), std::get<1>(call), std::get<2>(call), count);
  return profiles;
}

Result<ContextProfiles> count_contexts(const Recording& recording, const CodeCountOptions& options) {
  FunctionTable functions;
  ContextCounter counter(recording, options, functions);
  bool stopped = false;
  for (const uint32_t stream : streams_of(recording, options)) {
    const Status status = count_stream(recording, options, stream, stopped,
                                       [&counter](const Batch& batch, const BlockTable& blocks) { counter.take(batch, blocks); });
    if (!status) return status.error();
    counter.finish();
    if (stopped) break;
  }
  return counter.profiles();
}

}  // namespace ptd

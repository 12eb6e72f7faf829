// TextWrites: see text_writes.h.
#include "capture/live/kernel/text_writes.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "perfio/format/wire.h"

namespace ptd::live {
namespace {

constexpr unsigned kMostRounds = 100;  // between a write to a module that is loaded and the reading of its code
constexpr uint64_t kWordBytes = 4;

}  // namespace

CodeChange TextWrites::first_change() const {
  CodeChange change{1, 0, {}};
  change.poke.addr = image_.address;
  const std::byte* word = const_cast<TextWrites*>(this)->known(image_.address);
  if (word != nullptr) change.poke.old_bytes.assign(word, word + kWordBytes);
  change.poke.new_bytes = change.poke.old_bytes;
  return change;
}

void TextWrites::on_free(MemoryExtent code) {
  const uint64_t end = code.address + code.size_bytes;
  for (auto it = code_.upper_bound(code.address); it != code_.end() && it->second.address < end;) {
    const uint64_t old_end = it->first;
    const Extent old = std::move(it->second);
    it = code_.erase(it);
    if (old_end > end)
      it = code_.insert_or_assign(old_end, Extent{end, {old.bytes.end() - static_cast<ptrdiff_t>(old_end - end), old.bytes.end()}}).first;
    if (old.address < code.address)
      code_[code.address] = {old.address, {old.bytes.begin(), old.bytes.begin() + static_cast<ptrdiff_t>(code.address - old.address)}};
  }
}

void TextWrites::on_code(uint64_t address, Bytes code) {
  if (code.empty()) return;
  on_free({address, code.size()});
  code_[address + code.size()] = {address, {code.begin(), code.end()}};
  std::erase_if(unplaced_, [&](const Write& write) {  // the code holds what they wrote
    const uint64_t at = address_of(write.begin);
    return at != 0 && at - address < code.size();
  });
}

void TextWrites::on_record(Bytes record, int32_t cpu) {
  constexpr size_t kFieldsAt = 16;  // after the common fields and the address of the probe
  const perfio::RecordHeader header = perfio::read_record_header(record);
  perfio::Cursor body(record.subspan(perfio::kRecordHeaderBytes));
  Sample sample;
  sample.cpu = cpu;
  if (header.type == perfio::kRecordLost) {
    body.skip(8);  // the event's id
    sample.lost = body.u64();
    sample.time_ns = body.u64();
    sample.last_ns = last_[cpu];
    if (body.ok() && sample.lost != 0) samples_.push_back(sample);
    return;
  }
  if (header.type != perfio::kRecordSample) return;
  sample.time_ns = last_[cpu] = body.u64();
  const Bytes raw = body.take(body.u32());
  perfio::Cursor fields(raw.subspan(std::min(kFieldsAt, raw.size())));
  sample.index = fields.u64();
  sample.place = fields.u64();
  for (uint64_t& word : sample.stack) word = fields.u64();
  if (fields.ok()) samples_.push_back(sample);
}

std::byte* TextWrites::known(uint64_t address) {
  const auto extent = code_.upper_bound(address);
  if (extent == code_.end() || address < extent->second.address || extent->first - address < kWordBytes) return nullptr;
  return extent->second.bytes.data() + (address - extent->second.address);
}

bool TextWrites::is_image(const Sample& sample) const {
  return image_place_ != 0 && sample.place >= image_place_ && sample.place - image_place_ < image_.size_bytes;
}

/// The place is that of the word itself, not of its page.
uint64_t TextWrites::address_of(const Sample& sample) const {
  if (is_image(sample)) {
    const uint64_t address = image_.address + (sample.place - image_place_);
    bool others = false;  // the callers have another address of the image: its place is not where it was said to be
    for (const uint64_t word : sample.stack) {
      if (word == address) return address;
      others = others || (word - image_.address < image_.size_bytes && word % kPage == address % kPage);
    }
    return others ? 0 : address;
  }
  uint64_t found = 0;
  for (const uint64_t word : sample.stack) {  // a module: a caller's address of it
    const auto extent = code_.upper_bound(word);
    const bool inside = extent != code_.end() && word >= extent->second.address && word - image_.address >= image_.size_bytes;
    if (!inside || word % kPage != sample.place % kPage || word == found) continue;
    if (found != 0) return 0;  // ambiguous
    found = word;
  }
  return found;
}

/// Pairs the samples of each cpu: writes disable interrupts, so that no other comes between.
std::vector<TextWrites::Write> TextWrites::writes() {
  std::vector<Write> writes;
  std::stable_sort(samples_.begin(), samples_.end(), [](const Sample& a, const Sample& b) { return a.time_ns < b.time_ns; });
  for (const Sample& sample : samples_) {
    const auto begun = open_.find(sample.cpu);
    if (sample.lost != 0) {
      open_.erase(sample.cpu);
      writes.push_back({sample, sample.time_ns, 0});
    } else if (sample.place == 0) {
      if (begun == open_.end() || begun->second.index != sample.index) continue;
      Write write{begun->second, sample.time_ns, address_of(begun->second)};
      if (is_image(write.begin)) poke_index_ = sample.index;
      open_.erase(begun);
      if (write.address != 0 || write.begin.index == poke_index_) writes.push_back(write);
      if (const uint64_t other = write.address == 0 ? other_code(write.begin) : 0; other != 0)
        pages_[write.begin.place / kPage] = other / kPage;
    } else {
      open_[sample.cpu] = sample;
    }
  }
  samples_.clear();
  return writes;
}

namespace {

uint32_t half_of(const std::array<uint64_t, TextWrites::kStackWords>& stack, size_t half) {
  return static_cast<uint32_t>(stack[half / 2] >> (32 * (half % 2)));
}

}  // namespace

/// Counts which places on the stack hold the word that memory holds after the last write to it. A word that was written again since may fit
/// the wrong place.
void TextWrites::calibrate(const std::vector<Write>& writes, const ReadMemory& read) {
  std::set<uint64_t> seen;
  for (auto write = writes.rbegin(); write != writes.rend(); ++write) {
    if (write->address == 0 || !seen.insert(write->address).second) continue;
    const std::vector<std::byte> now = read({write->address, kWordBytes});
    uint32_t word = 0;
    if (now.size() != kWordBytes) continue;
    std::memcpy(&word, now.data(), sizeof(word));
    for (size_t i = 0; i < fits_.size(); ++i) fits_[i] += half_of(write->begin.stack, i) == word ? 1 : 0;
  }
}

/// Returns the word that a sample's write wrote: what the likeliest places on the stack hold. Nothing if they differ.
std::optional<uint32_t> TextWrites::word_of(const Sample& sample) const {
  const uint64_t most = *std::max_element(fits_.begin(), fits_.end());
  std::optional<uint32_t> word;
  for (size_t i = 0; i < fits_.size() && most != 0; ++i) {
    if (fits_[i] != most) continue;
    const uint32_t held = half_of(sample.stack, i);
    if (word && *word != held) return std::nullopt;
    word = held;
  }
  return word;
}

void TextWrites::add_change(const Write& write, bool old_known, std::vector<CodeChange>& changes) {
  const std::optional<uint32_t> word = word_of(write.begin);
  std::byte* at = known(write.address);
  CodeChange change{write.begin.time_ns, write.begin.cpu, {}};
  change.poke.addr = write.address;
  change.poke.old_bytes.assign(at, at + kWordBytes);
  std::memcpy(at, &*word, kWordBytes);
  change.poke.new_bytes.assign(at, at + kWordBytes);
  // The same bytes: memory may have been read after the write.
  if (old_known && change.poke.old_bytes != change.poke.new_bytes) changes.push_back(change);
  change.time_ns = write.end_ns;
  change.poke.old_bytes = change.poke.new_bytes;
  changes.push_back(change);
  ++counts_.changes;
}

/// Returns an address outside of all known code that the write may be to: one that the callers have, or else by a write before to the same
/// page (aarch64_insn_set(), which overwrites code that is freed, keeps none on the stack). 0 if there is none, or if the callers have one
/// of known code.
uint64_t TextWrites::other_code(const Sample& sample) const {
  constexpr uint64_t kKernelHalf = uint64_t{1} << 63;
  const auto is_known = [this](uint64_t address) {
    const auto extent = code_.upper_bound(address);
    return address - image_.address < image_.size_bytes || (extent != code_.end() && address >= extent->second.address);
  };
  uint64_t found = 0;
  for (const uint64_t word : sample.stack) {
    if (word < kKernelHalf || word % kPage != sample.place % kPage) continue;
    if (is_known(word)) return 0;
    found = word;
  }
  if (found != 0) return found;
  const auto page = pages_.find(sample.place / kPage);
  const uint64_t address = page == pages_.end() ? 0 : page->second * kPage + sample.place % kPage;
  return is_known(address) ? 0 : address;
}

void TextWrites::wait_for_code(const OnUnknown& on_unknown) {
  for (Write& write : unplaced_) {
    if (++write.rounds < kMostRounds || other_code(write.begin) != 0) continue;
    ++counts_.unknown;
    on_unknown(write.begin.time_ns, write.begin.cpu);
  }
  std::erase_if(unplaced_, [](const Write& write) { return write.rounds >= kMostRounds; });
}

/// Reads a word that was written unseen, or with address 0 all code.
void TextWrites::read_again(uint64_t address, const ReadMemory& read) {
  std::byte* word = address == 0 ? nullptr : known(address);
  const std::vector<std::byte> now = word == nullptr ? std::vector<std::byte>() : read({address, kWordBytes});
  if (now.size() == kWordBytes) std::copy(now.begin(), now.end(), word);
  for (auto extent = code_.begin(); address == 0 && extent != code_.end(); ++extent) {
    std::vector<std::byte>& bytes = extent->second.bytes;
    const std::vector<std::byte> all = read({extent->second.address, bytes.size()});
    std::copy_n(all.begin(), std::min(all.size(), bytes.size()), bytes.begin());
  }
}

std::vector<CodeChange> TextWrites::take(const ReadMemory& read, const OnUnknown& on_unknown) {
  std::vector<CodeChange> changes;
  const std::vector<Write> all = writes();
  calibrate(all, read);
  wait_for_code(on_unknown);
  std::set<uint64_t> unseen;  // what is noted of these addresses is not what was there; with 0 of none
  for (const Write& write : all) {
    if (write.begin.lost != 0) {
      counts_.unknown += write.begin.lost;
      on_unknown(write.begin.last_ns, write.begin.cpu);
      on_unknown(write.end_ns, write.begin.cpu);
      unseen.insert(0);
    } else if (write.address == 0) {
      unplaced_.push_back(write);
    } else if (known(write.address) == nullptr || !word_of(write.begin)) {
      ++counts_.unknown;
      on_unknown(write.begin.time_ns, write.begin.cpu);
      unseen.insert(write.address);
    } else {
      add_change(write, !unseen.contains(0) && !unseen.contains(write.address), changes);
    }
  }
  for (const uint64_t address : unseen) read_again(address, read);
  return changes;
}

}  // namespace ptd::live

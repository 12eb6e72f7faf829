// PageStore: see page_store.h.
#include "replay/page_store.h"

#include <algorithm>

#include "decoder/event_join.h"
#include "recording/data/recording_data.h"

namespace ptd::replay {

size_t Page::size_bytes() const {
  return sizeof(Page) + blocks.capacity() * sizeof(Block) + stretches.capacity() * sizeof(Stretch) + events.capacity() * sizeof(Event) +
         gaps.capacity() * sizeof(Gap);
}

/// Decodes one segment page by page, from its start.
struct PageStore::Decode {
  std::unique_ptr<FlowDecoder> decoder;
  std::vector<std::byte> scratch;
  AuxSegment segment;
  bool is_open = false;      ///< `segment` has more pages
  bool is_window = false;    ///< `segment` begins a window, whose edge is not in a page yet
  uint32_t next_number = 0;  ///< of the next page
  TimeNs latest;             ///< no time of the segment is later
  FlowCursor cursor;
  EventJoin join;
  Batch batch;

  bool open(const Recording& recording, uint32_t stream, uint64_t offset);
  PagePtr fill(uint32_t stream);
  void add_edge(Page& page, Stretch next);
  void add(Page& page);
};

// The bounds of a segment, which include rounding, may overlap those of the next one. Times that never go back need bounds that do not.
bool PageStore::Decode::open(const Recording& recording, uint32_t stream, uint64_t offset) {
  uint64_t at = offset;
  is_open = recording.next_segment(stream, at, segment, scratch);
  if (!is_open) return false;
  is_window = begins_window(recording, stream, segment);
  const RecordingData& data = data_of(recording);
  const auto after = data.indexes[stream].next(at);
  latest = std::max(segment.time.first, after ? data.indexes[stream].time_of(*after, data.timing).first : segment.time.last);
  decoder->begin(segment);
  cursor.reset();
  join.reset();
  next_number = 0;
  return true;
}

void PageStore::Decode::add_edge(Page& page, Stretch next) {
  next.kind = FlowItem::gap;
  next.is_window = true;
  page.stretches.push_back(next);
  is_window = false;
}

void PageStore::Decode::add(Page& page) {
  cursor.begin(batch);
  for (FlowItem item = cursor.next(); item != FlowItem::end; item = cursor.next()) {
    if (item == FlowItem::mark) continue;
    const Mark& context = cursor.context();
    const int32_t tid = context.tid == -1 ? segment.tid : context.tid;
    Stretch stretch{item, 0, 1, std::clamp(cursor.now(), segment.time.first, latest), context.pid, tid, context.space};
    if (is_window) add_edge(page, stretch);
    if (item == FlowItem::blocks) {
      const std::span<const Block> blocks = cursor.blocks();
      stretch.first = static_cast<uint32_t>(page.blocks.size());
      stretch.count = static_cast<uint32_t>(blocks.size());
      page.blocks.insert(page.blocks.end(), blocks.begin(), blocks.end());
    } else if (item == FlowItem::event) {
      stretch.first = static_cast<uint32_t>(page.events.size());
      page.events.push_back(cursor.event());
    } else {
      stretch.first = static_cast<uint32_t>(page.gaps.size());
      page.gaps.push_back(cursor.gap());
    }
    page.stretches.push_back(stretch);
  }
}

PagePtr PageStore::Decode::fill(uint32_t stream) {
  auto page = std::make_shared<Page>();
  page->stream = stream;
  page->number = next_number++;
  page->offset_bytes = segment.stream_offset_bytes;
  while (is_open && page->blocks.size() < kPageItems && page->stretches.size() < kPageItems) {
    batch.clear();
    is_open = decoder->next(batch);
    join.apply(batch);
    add(*page);
  }
  page->is_last = !is_open;
  if (page->is_last && is_window) add_edge(*page, {FlowItem::gap, 0, 1, segment.time.first, -1, segment.tid});
  page->blocks.shrink_to_fit();
  page->stretches.shrink_to_fit();
  return page;
}

PageStore::PageStore(const Recording& recording) : recording_(&recording), decodes_(recording.streams().size()) {}
PageStore::~PageStore() = default;

PageStore::Decode& PageStore::decode_of(uint32_t stream) {
  std::unique_ptr<Decode>& decode = decodes_[stream];
  if (!decode) {
    decode = std::make_unique<Decode>();
    decode->decoder = recording_->make_decoder(stream);
  }
  return *decode;
}

const BlockTable& PageStore::table(uint32_t stream) { return decode_of(stream).decoder->blocks(); }

PagePtr PageStore::find(const Key& key) {
  const auto kept = kept_.find(key);
  if (kept == kept_.end()) return nullptr;
  uses_.splice(uses_.begin(), uses_, kept->second.use);
  return kept->second.page;
}

void PageStore::keep(const PagePtr& page) {
  const Key key{page->stream, page->offset_bytes, page->number};
  if (kept_.contains(key)) return;
  uses_.push_front(key);
  kept_.emplace(key, Kept{page, uses_.begin()});
  kept_bytes_ += page->size_bytes();
  while (kept_bytes_ > kCacheBytes && uses_.size() > 2) {
    const auto oldest = kept_.find(uses_.back());
    kept_bytes_ -= oldest->second.page->size_bytes();
    kept_.erase(oldest);
    uses_.pop_back();
  }
}

PagePtr PageStore::page(uint32_t stream, uint64_t offset, uint32_t number) {
  if (number != kLastPage) {
    if (PagePtr known = find({stream, offset, number})) return known;
  } else if (const auto after = kept_.upper_bound({stream, offset, kLastPage}); after != kept_.begin()) {
    const PagePtr latest = std::prev(after)->second.page;
    if (latest->stream == stream && latest->offset_bytes == offset && latest->is_last) return find({stream, offset, latest->number});
  }
  Decode& decode = decode_of(stream);
  // Pages come from a segment's start on, unless the decoder is just before the wanted one.
  const bool goes_on = decode.is_open && decode.segment.stream_offset_bytes == offset && decode.next_number <= number;
  if (!goes_on && !decode.open(*recording_, stream, offset)) return nullptr;
  for (PagePtr made; decode.is_open;) {
    made = decode.fill(stream);
    ++decoded_;
    keep(made);
    if (made->is_last || made->number == number) return made;
  }
  return nullptr;
}

PagePtr PageStore::at(uint32_t stream, TimeNs time) {
  uint64_t at = recording_->segment_at(stream, time);
  AuxSegment segment;
  std::vector<std::byte> scratch;
  if (!recording_->next_segment(stream, at, segment, scratch)) return last(stream);
  return page(stream, segment.stream_offset_bytes, 0);
}

PagePtr PageStore::last(uint32_t stream) {
  const auto entry = data_of(*recording_).indexes[stream].previous(Recording::kStreamEnd);
  return entry ? page(stream, entry->offset_bytes, kLastPage) : nullptr;
}

PagePtr PageStore::next(const Page& of) {
  if (!of.is_last) return page(of.stream, of.offset_bytes, of.number + 1);
  const auto entry = data_of(*recording_).indexes[of.stream].next(of.offset_bytes + 1);
  return entry ? page(of.stream, entry->offset_bytes, 0) : nullptr;
}

PagePtr PageStore::previous(const Page& of) {
  if (of.number != 0) return page(of.stream, of.offset_bytes, of.number - 1);
  const auto entry = data_of(*recording_).indexes[of.stream].previous(of.offset_bytes);
  return entry ? page(of.stream, entry->offset_bytes, kLastPage) : nullptr;
}

}  // namespace ptd::replay

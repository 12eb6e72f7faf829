// Opens a raw capture: trace bytes, or a dump of ipt.sys, and code bytes as plain files.
#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "image/base/mapped_file.h"
#include "image/source/code_bytes.h"
#include "image/source/page_dump.h"
#include "ptdecode/pt/packet_reader.h"
#include "recording/data/recording_data.h"
#include "recording/image/image_build.h"
#include "recording/image/image_files.h"
#include "recording/windows/module_list.h"
#include "recording/windows/windows_modules.h"
#include "recording/windows/winipt_dump.h"

namespace ptd {
namespace {

SpaceId space_of(Ip ip, SpaceId user) { return is_kernel_half(ip) ? kKernelSpace : user; }

/// Two pieces that claim the same addresses with different bytes: both cannot have run. Returns whether there are any.
bool report_overlap(const Section& piece, const std::vector<Section>& before, ImageBuild& image) {
  bool any = false;
  for (const Section& other : before) {
    const uint64_t first = std::max(piece.ip.value, other.ip.value);
    const uint64_t end = std::min(piece.ip.value + piece.size_bytes, other.ip.value + other.size_bytes);
    if (end <= first) continue;
    const Bytes ours = piece.code.bytes.subspan(first - piece.ip.value, end - first),
                theirs = other.code.bytes.subspan(first - other.ip.value, end - first);
    if (std::equal(ours.begin(), ours.end(), theirs.begin())) continue;
    Finding finding;
    finding.kind = FindingKind::section_overlap;
    finding.space = piece.space;
    finding.ip = Ip{first};
    finding.what = piece.path.str() + " and " + other.path.str() + " contain different bytes for the same addresses; the last one is used";
    image.builder.add_finding(std::move(finding));
    any = true;
  }
  return any;
}

Status add_images(const std::vector<RawImage>& images, SpaceId user, ImageBuild& image, std::vector<Section>& added) {
  for (const RawImage& given : images) {
    const auto pieces = pieces_of(given, CodeFamily::x86);
    if (!pieces.ok()) return pieces.error();
    for (const ImagePiece& piece : *pieces) {
      Section section;
      section.code = piece_of(piece.file, piece.file_offset_bytes, piece.size_bytes);
      section.size_bytes = piece.size_bytes;
      section.ip = Ip{piece.address};
      section.space = space_of(section.ip, user);
      section.path = given.path;
      section.file_offset_bytes = piece.file_offset_bytes;
      (void)report_overlap(section, added, image);
      added.push_back(section);
      image.add_section(std::move(section));
    }
    image.add_symbol_file(given.path, given.path, {});
    image.note_origin(given.path, {}, given.path, "--image");
  }
  return {};
}

/// One finding for all addresses of the dump: there may be very many.
void report_pages(const std::string& path, const std::vector<Ip>& contradicted, SpaceId user, ImageBuild& image) {
  if (contradicted.empty()) return;
  Finding finding;
  finding.kind = FindingKind::section_overlap;
  finding.space = space_of(contradicted[0], user);
  finding.ip = contradicted[0];
  finding.what = path + " contains pages with different bytes for the same address" +
                 (contradicted.size() > 1 ? ", of " + std::to_string(contradicted.size()) + " addresses" : "") + "; the first one is used";
  image.builder.add_finding(std::move(finding));
}

Status add_pages(const RawOptions& raw, SpaceId user, ImageBuild& image, const std::vector<Section>& pieces,
                 std::vector<std::string>& warnings) {
  if (raw.pages_dump.empty()) return {};
  auto pages = read_page_dump(raw.pages_dump, raw.pages_addresses);
  if (!pages.ok()) return pages.error();
  if (!pages->odd_addresses.empty()) {
    char address[32];
    std::snprintf(address, sizeof address, "0x%" PRIx64, pages->odd_addresses[0]);
    warnings.push_back(raw.pages_addresses + ": skipped " + std::to_string(pages->odd_addresses.size()) +
                       " of the dump's pages, as the address is not a multiple of 4096: " + address +
                       (pages->odd_addresses.size() > 1 ? ", ..." : ""));
  }
  image.note_origin(raw.pages_dump, {}, raw.pages_dump, "--pages");
  report_pages(raw.pages_dump, pages->contradicted, user, image);
  bool reported = false;
  for (MemoryRange& range : pages->ranges) {
    Section section;
    section.ip = range.ip;
    section.space = space_of(range.ip, user);
    section.size_bytes = range.code.bytes.size();
    if (section.size_bytes > ~range.ip.value) continue;  // the last page of the address space cannot be executed to its end
    section.code = std::move(range.code);
    section.path = raw.pages_dump;
    reported = reported || report_overlap(section, pieces, image);
    image.add_section(std::move(section));
  }
  return {};
}

Status check_options(const RawOptions& raw) {
  if (!raw.pt_path.empty() && !raw.winipt_path.empty())
    return Error{ErrorCode::contradictory_options, "a raw trace and a dump of ipt.sys exclude each other", 0};
  if (raw.pages_dump.empty() != raw.pages_addresses.empty())
    return Error{ErrorCode::contradictory_options, "a page dump needs the file with its addresses, and the other way round", 0};
  if ((raw.tsc_ctc_ratio_n == 0) != (raw.tsc_ctc_ratio_d == 0))
    return Error{ErrorCode::contradictory_options, "the ratio of TSC and CTC has one zero: give both numbers or neither", 0};
  return {};
}

/// A trace is decoded from its PSBs on; without one there is nothing to show, and most likely the wrong file was named.
Status check_trace(Bytes trace, const std::string& path) {
  if (trace.empty()) return Error{ErrorCode::empty_file, path + " is empty", 0};
  if (pt::find_psb(trace, 0) < trace.size()) return {};
  return Error{ErrorCode::no_trace,
               path + " contains no PSB packet in its " + std::to_string(trace.size()) +
                   " bytes: not an Intel PT trace, or nothing to start decoding from",
               0};
}

// The folder of a file, "." for a plain name.
std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

// Adds one stream of an unknown cpu and thread.
Status load_trace(const RawOptions& raw, RecordingData& data) {
  auto trace = MappedFile::open(raw.pt_path);
  if (!trace.ok()) return trace.error();
  if (Status status = check_trace((*trace)->bytes(), raw.pt_path); !status.ok()) return status;
  AuxStream stream;
  stream.add_payload(0, (*trace)->bytes().size(), (*trace)->bytes(), false);
  data.streams.push_back(std::move(stream));
  data.owners.push_back(*trace);
  data.pages.add_mapping((*trace)->bytes());
  data.description = "raw Intel PT capture " + raw.pt_path;
  return {};
}

// Adds a stream for each thread, and sets the clocks as the dump says.
Status load_dump(const RawOptions& raw, SpaceId user, ImageBuild& image, RecordingData& data) {
  auto file = MappedFile::open(raw.winipt_path);
  if (!file.ok()) return file.error();
  auto dump = read_winipt(**file);
  if (!dump.ok()) return dump.error();
  if (!dump->has_psb) {
    return Error{ErrorCode::no_trace,
                 raw.winipt_path + " contains no PSB packet in the trace of its threads (" + std::to_string(dump->streams.size()) +
                     "): not a dump of ipt.sys, or nothing to start decoding from",
                 0};
  }
  data.streams = std::move(dump->streams);
  data.warnings.insert(data.warnings.end(), dump->warnings.begin(), dump->warnings.end());
  for (Finding& finding : dump->findings) {
    finding.space = user;
    data.warnings.push_back(finding.what);
    image.builder.add_finding(std::move(finding));
  }
  pt::Config& config = data.decoder.config;
  config.has_tsc = dump->has_timing;
  if (!raw.mtc_period) config.mtc_period = dump->mtc_period;
  if (config.tsc_ctc_ratio_d == 0 && dump->tsc_ctc_ratio != 0) config.tsc_ctc_ratio_n = dump->tsc_ctc_ratio, config.tsc_ctc_ratio_d = 1;
  config.has_mtc = dump->has_timing && config.tsc_ctc_ratio_d != 0;
  data.owners.push_back(*file);
  data.pages.add_mapping((*file)->bytes());
  data.description = "Windows Intel PT dump " + raw.winipt_path;
  return {};
}

}  // namespace

Status load_raw(const RawOptions& raw, const OpenRequest& options, RecordingData& data) {
  if (Status status = check_options(raw); !status.ok()) return status;
  data.kind = RecordingKind::raw;
  ImageBuild image(options);
  const SpaceId user = image.builder.add_space();
  pt::Config& config = data.decoder.config;
  config.cpu = raw.cpu;
  config.errata = pt::errata_of(raw.cpu);
  config.mtc_period = raw.mtc_period.value_or(0);
  data.lacks_period = !raw.mtc_period && raw.winipt_path.empty();
  config.tsc_ctc_ratio_n = raw.tsc_ctc_ratio_n;
  config.tsc_ctc_ratio_d = raw.tsc_ctc_ratio_d;
  config.max_nonturbo_ratio = raw.max_nonturbo_ratio;
  config.has_mtc = raw.tsc_ctc_ratio_d != 0;
  if (options.clock_hz != 0) config.time = TimeConversion::of_frequency(options.clock_hz);
  if (Status status = raw.winipt_path.empty() ? load_trace(raw, data) : load_dump(raw, user, image, data); !status.ok()) return status;

  std::vector<std::string> roots = options.symfs;
  roots.push_back(folder_of(raw.modules_path));
  WindowsModules modules(std::move(roots), user, image);
  if (!raw.modules_path.empty()) {
    const auto list = read_module_list(raw.modules_path);
    if (!list.ok()) return list.error();
    modules.add(*list);
  }
  std::vector<Section> pieces;
  if (Status status = add_images(options.images, user, image, pieces); !status.ok()) return status;
  if (Status status = add_pages(raw, user, image, pieces, data.warnings); !status.ok()) return status;

  // Threads of one process: every lookup gets the single user space.
  data.decoder.default_space = user;
  data.contexts.add_switch(-1, kTimeMin, {-1, -1, user});
  data.contexts.add_thread(-1, kTimeMin, {-1, -1, user});
  for (const AuxStream& stream : data.streams) {
    if (stream.tid < 0) continue;
    data.contexts.add_thread(stream.tid, kTimeMin, {-1, stream.tid, user});
    if (modules.program().empty()) continue;
    data.thread_names[stream.tid] = modules.program();
    data.comms[stream.tid] = {{kTimeMin, modules.program()}};
  }
  data.contexts.sort();
  image.finish(data);
  modules.add_symbols(*data.symbolizer);
  index_streams(options, data);
  return {};
}

}  // namespace ptd

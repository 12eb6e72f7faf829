// libipt as a reference: runs its instruction and block decoders over one trace.
#include "tests/oracle/libipt_oracle.h"

#include <intel-pt.h>

#include <cstdio>
#include <cstring>
#include <memory>

namespace ptd::oracle {
namespace {

int read_memory(uint8_t* buffer, size_t size, const pt_asid*, uint64_t ip, void* context) {
  const auto& reader = *static_cast<const MemoryReader*>(context);
  const size_t got = reader(ip, std::as_writable_bytes(std::span(buffer, size)));
  return got == 0 ? -pte_nomap : static_cast<int>(got);
}

pt_config make_config(Bytes trace, const OracleOptions& options) {
  pt_config config;
  pt_config_init(&config);
  // libipt never writes through these pointers when decoding; its interface just lacks the const.
  auto* begin = const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(trace.data()));
  config.begin = begin;
  config.end = begin + trace.size();
  if (options.cpu.family != 0) {
    config.cpu.vendor = pcv_intel;
    config.cpu.family = options.cpu.family;
    config.cpu.model = options.cpu.model;
    config.cpu.stepping = options.cpu.stepping;
    (void)pt_cpu_errata(&config.errata, &config.cpu);
  }
  config.cpuid_0x15_eax = options.tsc_ctc_ratio_d;
  config.cpuid_0x15_ebx = options.tsc_ctc_ratio_n;
  config.mtc_freq = options.mtc_period;
  config.nom_freq = options.max_nonturbo_ratio;
  if (options.filter_last != 0) {
    config.addr_filter.config.ctl.addr0_cfg = 1;  // FilterEn, as in IA32_RTIT_CTL.ADDR0_CFG
    config.addr_filter.addr0_a = options.filter_first;
    config.addr_filter.addr0_b = options.filter_last;
  }
  config.flags.variant.block.end_on_call = 1;
  config.flags.variant.block.end_on_jump = 1;
  return config;
}

void set_from(OracleEvent& out, uint64_t ip) {
  out.has_from = true;
  out.from = ip;
}
void set_to(OracleEvent& out, uint64_t ip) {
  out.has_to = true;
  out.to = ip;
}

// Events whose ip is where they happened or where the flow continues.
bool convert_flow_event(const pt_event& event, OracleEvent& out) {
  const bool has_ip = event.ip_suppressed == 0;
  switch (event.type) {
    case ptev_enabled:
      out.kind = EventKind::enabled;
      if (has_ip) set_to(out, event.variant.enabled.ip);
      out.resumed = event.variant.enabled.resumed != 0;
      return true;
    case ptev_disabled:
      out.kind = EventKind::disabled;
      if (has_ip) set_to(out, event.variant.disabled.ip);
      return true;
    case ptev_async_disabled:
      out.kind = EventKind::async_disabled;
      set_from(out, event.variant.async_disabled.at);
      if (has_ip) set_to(out, event.variant.async_disabled.ip);
      return true;
    case ptev_async_branch:
      out.kind = EventKind::async_branch;
      set_from(out, event.variant.async_branch.from);
      if (has_ip) set_to(out, event.variant.async_branch.to);
      return true;
    case ptev_overflow:
      out.kind = EventKind::overflow;
      if (has_ip) set_to(out, event.variant.overflow.ip);
      return true;
    case ptev_exec_mode:
      out.kind = EventKind::exec_mode;
      if (has_ip) set_to(out, event.variant.exec_mode.ip);
      out.payload = static_cast<uint64_t>(event.variant.exec_mode.mode);
      return true;
    case ptev_tsx:
      out.kind = event.variant.tsx.speculative ? EventKind::tsx_begin
                 : event.variant.tsx.aborted   ? EventKind::tsx_abort
                                               : EventKind::tsx_commit;
      if (has_ip) set_from(out, event.variant.tsx.ip);
      return true;
    case ptev_stop:
      out.kind = EventKind::trace_stop;
      return true;
    default:
      return false;
  }
}

// Events that carry a payload.
bool convert_payload_event(const pt_event& event, OracleEvent& out) {
  const bool has_ip = event.ip_suppressed == 0;
  switch (event.type) {
    case ptev_paging:
    case ptev_async_paging:
      out.kind = EventKind::paging;
      out.payload = event.type == ptev_paging ? event.variant.paging.cr3 : event.variant.async_paging.cr3;
      out.non_root = (event.type == ptev_paging ? event.variant.paging.non_root : event.variant.async_paging.non_root) != 0;
      if (event.type == ptev_async_paging && has_ip) set_to(out, event.variant.async_paging.ip);
      return true;
    case ptev_vmcs:
    case ptev_async_vmcs:
      out.kind = EventKind::vmcs;
      out.payload = event.type == ptev_vmcs ? event.variant.vmcs.base : event.variant.async_vmcs.base;
      if (event.type == ptev_async_vmcs && has_ip) set_to(out, event.variant.async_vmcs.ip);
      return true;
    case ptev_exstop:
      out.kind = EventKind::exstop;
      if (has_ip) set_from(out, event.variant.exstop.ip);
      return true;
    case ptev_mwait:
      out.kind = EventKind::mwait;
      out.payload = event.variant.mwait.hints;
      out.aux = event.variant.mwait.ext;
      if (has_ip) set_from(out, event.variant.mwait.ip);
      return true;
    case ptev_pwre:
      out.kind = EventKind::pwre;
      out.payload = event.variant.pwre.state;
      out.aux = event.variant.pwre.sub_state;
      return true;
    case ptev_pwrx:
      out.kind = EventKind::pwrx;
      out.payload = event.variant.pwrx.last;
      out.aux = event.variant.pwrx.deepest;
      return true;
    case ptev_ptwrite:
      out.kind = EventKind::ptwrite;
      out.payload = event.variant.ptwrite.payload;
      out.aux = event.variant.ptwrite.size;
      if (has_ip) set_from(out, event.variant.ptwrite.ip);
      return true;
    case ptev_cbr:
      out.kind = EventKind::cbr;
      out.payload = event.variant.cbr.ratio;
      return true;
    case ptev_mnt:
      out.kind = EventKind::mnt;
      out.payload = event.variant.mnt.payload;
      return true;
    default:
      return false;
  }
}

struct ImageDeleter {
  void operator()(pt_image* image) const { pt_image_free(image); }
};

// The common part of the two libipt decoders, so that one loop runs both.
struct InsnDriver {
  using Decoder = pt_insn_decoder;
  using Item = pt_insn;
  static Decoder* alloc(const pt_config* config) { return pt_insn_alloc_decoder(config); }
  static void free(Decoder* d) { pt_insn_free_decoder(d); }
  static int set_image(Decoder* d, pt_image* image) { return pt_insn_set_image(d, image); }
  static int sync(Decoder* d) { return pt_insn_sync_forward(d); }
  static int offset(Decoder* d, uint64_t* o) { return pt_insn_get_offset(d, o); }
  static int event(Decoder* d, pt_event* e) { return pt_insn_event(d, e, sizeof(*e)); }
  static int next(Decoder* d, Item* item) { return pt_insn_next(d, item, sizeof(*item)); }
  // An error keeps the instruction if it was decoded completely before the decoder failed on what follows it.
  static bool usable(const Item& item) { return item.iclass != ptic_error; }
  static void take(const Item& item, const OracleOptions& options, OracleFlow& flow) {
    flow.insns.push_back(item.ip);
    if (item.iclass != ptic_other && item.iclass != ptic_ptwrite) flow.branches.push_back(flow.instructions);
    if (options.keep_bytes) flow.insn_bytes.emplace_back(reinterpret_cast<const char*>(item.raw), item.size);
    ++flow.instructions;
  }
};

struct BlockDriver {
  using Decoder = pt_block_decoder;
  using Item = pt_block;
  static Decoder* alloc(const pt_config* config) { return pt_blk_alloc_decoder(config); }
  static void free(Decoder* d) { pt_blk_free_decoder(d); }
  static int set_image(Decoder* d, pt_image* image) { return pt_blk_set_image(d, image); }
  static int sync(Decoder* d) { return pt_blk_sync_forward(d); }
  static int offset(Decoder* d, uint64_t* o) { return pt_blk_get_offset(d, o); }
  static int event(Decoder* d, pt_event* e) { return pt_blk_event(d, e, sizeof(*e)); }
  static int next(Decoder* d, Item* item) { return pt_blk_next(d, item, sizeof(*item)); }
  static bool usable(const Item& item) { return item.ninsn != 0; }
  static void take(const Item& item, const OracleOptions&, OracleFlow& flow) {
    flow.blocks.push_back({item.ip, item.end_ip, item.ninsn, flow.instructions});
    flow.instructions += item.ninsn;
  }
};

template <class Driver>
class Run {
 public:
  Run(Bytes trace, const OracleOptions& options, const MemoryReader& memory)
      : options_(options), memory_(memory), config_(make_config(trace, options)), image_(pt_image_alloc("oracle")) {
    if constexpr (std::is_same_v<Driver, InsnDriver>) std::memset(&config_.flags, 0, sizeof(config_.flags));
    // The callback's context is not modified.
    (void)pt_image_set_callback(image_.get(), read_memory, const_cast<MemoryReader*>(&memory_));
    decoder_ = Driver::alloc(&config_);
    if (decoder_ != nullptr) (void)Driver::set_image(decoder_, image_.get());
  }
  ~Run() { Driver::free(decoder_); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  OracleFlow decode() {
    if (decoder_ == nullptr) return std::move(flow_);
    uint64_t last_sync = ~0ULL;
    for (;;) {
      const int status = Driver::sync(decoder_);
      uint64_t here = 0;
      (void)Driver::offset(decoder_, &here);
      if (status < 0) {
        if (status == -pte_eos) break;
        add_error("sync", status, 0);
        if (here == last_sync) break;  // no progress
        last_sync = here;
        continue;
      }
      ++flow_.sync_points;
      if (!follow(status) || flow_.instructions >= options_.max_instructions) break;
    }
    return std::move(flow_);
  }

 private:
  uint64_t offset() const {
    uint64_t here = 0;
    (void)Driver::offset(decoder_, &here);
    return here;
  }
  void add_error(const char* stage, int status, uint64_t ip) {
    flow_.errors.push_back({flow_.instructions, offset(), ip, stage, pt_errstr(pt_errcode(status))});
  }

  // Follows the flow from a sync point. Returns false at the end of the trace, true to resync.
  bool follow(int status) {
    while (flow_.instructions < options_.max_instructions) {
      while ((status & pts_event_pending) != 0) {
        pt_event event{};
        status = Driver::event(decoder_, &event);
        if (status < 0) {
          add_error("event", status, 0);
          return true;
        }
        OracleEvent out;
        out.before_insn = flow_.instructions;
        out.status = event.status_update != 0;
        out.has_tsc = event.has_tsc != 0;
        out.tsc = event.tsc;
        out.offset_bytes = offset();
        if (convert_flow_event(event, out) || convert_payload_event(event, out)) flow_.events.push_back(out);
      }
      if ((status & pts_eos) != 0) return false;
      typename Driver::Item item{};
      status = Driver::next(decoder_, &item);
      if (Driver::usable(item)) Driver::take(item, options_, flow_);
      if (status < 0) {
        if (status == -pte_eos) return false;
        add_error("insn", status, item.ip);
        return true;
      }
    }
    return false;
  }

  OracleOptions options_;
  const MemoryReader& memory_;
  pt_config config_;
  std::unique_ptr<pt_image, ImageDeleter> image_;
  typename Driver::Decoder* decoder_ = nullptr;
  OracleFlow flow_;
};

// The corpus' name of an event kind; the product's own names are not used, so that an error in one cannot hide an error in the other.
const char* kind_name(EventKind kind) {
  switch (kind) {
    case EventKind::enabled:
      return "enabled";
    case EventKind::disabled:
      return "disabled";
    case EventKind::async_disabled:
      return "async_disabled";
    case EventKind::async_branch:
      return "async_branch";
    case EventKind::exec_mode:
      return "exec_mode";
    case EventKind::paging:
      return "paging";
    case EventKind::vmcs:
      return "vmcs";
    case EventKind::tsx_begin:
      return "tsx_begin";
    case EventKind::tsx_commit:
      return "tsx_commit";
    case EventKind::tsx_abort:
      return "tsx_abort";
    case EventKind::overflow:
      return "overflow";
    case EventKind::trace_stop:
      return "stop";
    case EventKind::ptwrite:
      return "ptwrite";
    case EventKind::exstop:
      return "exstop";
    case EventKind::mwait:
      return "mwait";
    case EventKind::pwre:
      return "pwre";
    case EventKind::pwrx:
      return "pwrx";
    case EventKind::cbr:
      return "cbr";
    case EventKind::mnt:
      return "mnt";
    default:
      return "other";
  }
}

}  // namespace

bool has_event_decoder() {
  const pt_version version = pt_library_version();
  return version.major > 2 || (version.major == 2 && version.minor >= 1);
}

OracleFlow decode_insns(Bytes trace, const OracleOptions& options, const MemoryReader& memory) {
  return Run<InsnDriver>(trace, options, memory).decode();
}

OracleFlow decode_blocks(Bytes trace, const OracleOptions& options, const MemoryReader& memory) {
  return Run<BlockDriver>(trace, options, memory).decode();
}

std::string text(const OracleEvent& event) {
  char buffer[64];
  std::string out = std::to_string(event.before_insn) + " " + kind_name(event.kind);
  const auto field = [&](const char* key, uint64_t value) {
    std::snprintf(buffer, sizeof buffer, " %s=%llx", key, static_cast<unsigned long long>(value));
    out += buffer;
  };
  if (event.kind == EventKind::exec_mode) field("mode", event.payload);
  if (event.kind == EventKind::async_disabled && event.has_to) field("at", event.from);
  if (event.kind == EventKind::async_branch) field("from", event.from);
  if (event.has_to) field("ip", event.to);
  if (event.resumed) out += " resumed";
  if (event.has_tsc) field("tsc", event.tsc);
  return out;
}

std::string text(const OracleError& error) {
  char buffer[160];
  std::snprintf(buffer, sizeof buffer, "%llu off=%llx ip=%llx %s: ", static_cast<unsigned long long>(error.before_insn),
                static_cast<unsigned long long>(error.offset_bytes), static_cast<unsigned long long>(error.ip), error.stage.c_str());
  return buffer + error.message;
}

}  // namespace ptd::oracle

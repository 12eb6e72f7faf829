// AuxSampler: see aux_samples.h.
#include "capture/emulate/aux_samples.h"

#include <algorithm>
#include <utility>

#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/pt_clock.h"

namespace ptd::emulate {
namespace {

pt::Config clock_config(const PtEncoderOptions& options) {
  pt::Config config;
  config.has_tsc = options.tsc;
  config.has_mtc = options.mtc;
  config.has_cyc = options.cyc;
  config.mtc_period = options.mtc_period;
  config.tsc_ctc_ratio_n = options.tsc_per_ctc;
  config.tsc_ctc_ratio_d = 1;
  config.max_nonturbo_ratio = options.bus_ratio;
  return config;
}

constexpr size_t kForgetAtBytes = 1U << 20;

bool has_ip(pt::PacketKind kind) {
  return kind == pt::PacketKind::tip || kind == pt::PacketKind::tip_pge || kind == pt::PacketKind::tip_pgd || kind == pt::PacketKind::fup;
}

}  // namespace

AuxSampler::AuxSampler(const UserConfig& options) : options_(options), buffer_(options.aux_sample_bytes) {}

void AuxSampler::forget() {
  const size_t kept = options_.aux_sample_bytes;
  if (buffer_.size() > kept) buffer_.erase(buffer_.begin(), buffer_.end() - static_cast<std::ptrdiff_t>(kept));
}

void AuxSampler::take(uint64_t ip) {
  TakenSample& sample = samples_.emplace_back();
  sample.ip = ip;
  sample.window.assign(buffer_.end() - static_cast<std::ptrdiff_t>(options_.aux_sample_bytes), buffer_.end());
  forget();
  since_ = 0;
}

// The interrupt came before the next timing packet.
void AuxSampler::date(size_t first, uint64_t tsc) {
  for (size_t i = first; i < samples_.size(); ++i) samples_[i].tsc = tsc;
}

void AuxSampler::add(Bytes packets, uint64_t first_tsc, uint64_t end_tsc) {
  pt::PacketReader reader(packets);
  pt::PtClock clock(clock_config(options_.pt));
  clock.set_reference(Tsc{first_tsc});
  pt::Packet packet;
  uint64_t last_ip = 0;
  bool is_fup = false;  // the packet before
  size_t undated = samples_.size();
  const auto estimate = [&](uint64_t at) {  // without timing packets
    return first_tsc +
           static_cast<uint64_t>(static_cast<double>(end_tsc - first_tsc) * static_cast<double>(at) / static_cast<double>(packets.size()));
  };
  while (true) {
    const uint64_t at = reader.offset();
    if (reader.next(packet) != pt::PacketReader::Status::ok) break;
    const Bytes bytes = packets.subspan(at, packet.size_bytes);
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    since_ += bytes.size();
    if (buffer_.size() > kForgetAtBytes + options_.aux_sample_bytes) forget();
    if (packet.kind == pt::PacketKind::psb) last_ip = 0;
    if (clock.on_packet(packet, at) && undated < samples_.size()) {
      date(undated, clock.now().value);
      undated = samples_.size();
    }
    const bool whole = has_ip(packet.kind) && pt::decompress_ip(packet, last_ip);
    const bool interrupted = std::exchange(is_fup, whole && packet.kind == pt::PacketKind::fup) && packet.kind == pt::PacketKind::tip_pgd;
    if (!interrupted || since_ < options_.pt.pause_every_bytes) continue;
    take(last_ip);
    if (!options_.pt.tsc) date(undated++, estimate(at));
  }
  date(undated, end_tsc);
}

}  // namespace ptd::emulate

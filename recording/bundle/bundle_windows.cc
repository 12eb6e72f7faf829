// AUX samples as bytes: see bundle_windows.h.
#include "recording/bundle/bundle_windows.h"

#include <algorithm>
#include <utility>

namespace ptd {

void write_windows(const RecordingData& data, const std::function<bool(size_t stream, const AuxSample&)>& is_kept, ByteWriter& out) {
  out.number(data.sample_names.size());
  for (const std::string& name : data.sample_names) out.text(name);
  out.number(data.streams.size());
  for (size_t i = 0; i < data.streams.size(); ++i) {
    const std::vector<AuxSample>& samples = data.streams[i].samples();
    const auto kept = [&](const AuxSample& sample) { return is_kept(i, sample); };
    uint64_t end = 0;
    out.number(static_cast<uint64_t>(std::count_if(samples.begin(), samples.end(), kept)));
    for (const AuxSample& sample : samples) {
      if (!kept(sample)) continue;
      out.number(sample.last_bytes - end);
      out.number(sample.last_bytes - sample.first_bytes);
      out.number(sample.event);
      out.time(sample.time);
      out.number(sample.ip.value);
      for (const int32_t id : {sample.pid, sample.tid, sample.cpu}) out.signed_number(id);
      end = sample.last_bytes;
    }
  }
}

bool read_windows(ByteReader in, RecordingData& data) {
  for (uint64_t left = in.count(sizeof(std::string)); left > 0 && in.ok(); --left) data.sample_names.push_back(in.text());
  if (in.number() != data.streams.size()) return false;
  for (AuxStream& stream : data.streams) {
    std::vector<AuxSample> samples;
    uint64_t end = 0;
    for (uint64_t left = in.count(sizeof(AuxSample)); left > 0 && in.ok(); --left) {
      AuxSample& sample = samples.emplace_back();
      end += in.number_to(~uint64_t{0} - end);
      sample.last_bytes = end;
      sample.first_bytes = end - in.number_to(end);
      sample.event = static_cast<uint32_t>(in.number_to(UINT32_MAX));
      sample.time = in.time();
      sample.ip = Ip{in.number()};
      for (int32_t* id : {&sample.pid, &sample.tid, &sample.cpu}) *id = in.id();
      if (sample.event >= data.sample_names.size()) return false;
    }
    stream.restore_samples(std::move(samples));
  }
  return in.done();
}

Status add_given_comms(const RecordingData& data, BundleFileWriter& file) {
  if (data.given_comms.empty()) return {};
  ByteWriter out;
  out.number(data.given_comms.size());
  for (const auto& [tid, time] : data.given_comms) {
    out.signed_number(tid);
    out.time(time);
  }
  return file.add(chunk::kGivenComms, out.bytes());
}

bool read_given_comms(ByteReader in, RecordingData& data) {
  for (uint64_t left = in.count(sizeof(std::pair<int32_t, TimeNs>)); left > 0 && in.ok(); --left) {
    const int32_t tid = in.id();
    data.given_comms.emplace(tid, in.time());
  }
  return in.done();
}

void write_leaves(const ContextTrack& contexts, ByteWriter& out) {
  const std::vector<int32_t> cpus = contexts.cpus();
  for (const int32_t cpu : cpus) {
    const std::vector<TimeNs>& leaves = contexts.leaves(cpu);
    if (leaves.empty()) continue;
    out.signed_number(cpu);
    out.number(leaves.size());
    uint64_t before = 0;
    for (const TimeNs time : leaves) out.number(time.value - std::exchange(before, time.value));
  }
}

Status add_leaves(const ContextTrack& contexts, BundleFileWriter& file) {
  ByteWriter out;
  write_leaves(contexts, out);
  return out.bytes().empty() ? Status{} : file.add(chunk::kLeaves, out.bytes());
}

bool read_leaves(ByteReader in, ContextTrack& contexts) {
  while (in.ok() && !in.done()) {
    const int32_t cpu = in.id();
    uint64_t time = 0;
    for (uint64_t left = in.count(sizeof(TimeNs)); left > 0 && in.ok(); --left) {
      time += in.number_to(~uint64_t{0} - time);
      if (in.ok() && cpu >= 0) contexts.add_leave(cpu, TimeNs{time});
    }
  }
  contexts.sort();
  return in.done();
}

}  // namespace ptd

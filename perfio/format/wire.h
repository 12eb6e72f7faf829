// Constants and byte access of the perf.data format: record types, misc bits, sample_type bits, a bounds-checked cursor.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "ptdecode/types.h"

namespace ptd::perfio {

/// Record types: linux/perf_event.h "enum perf_event_type" below 64, tools/lib/perf "enum perf_user_event_type" from 64 on.
enum RecordType : uint32_t {
  kRecordMmap = 1,
  kRecordLost = 2,
  kRecordComm = 3,
  kRecordExit = 4,
  kRecordThrottle = 5,
  kRecordUnthrottle = 6,
  kRecordFork = 7,
  kRecordRead = 8,
  kRecordSample = 9,
  kRecordMmap2 = 10,
  kRecordAux = 11,
  kRecordItraceStart = 12,
  kRecordLostSamples = 13,
  kRecordSwitch = 14,
  kRecordSwitchCpuWide = 15,
  kRecordNamespaces = 16,
  kRecordKsymbol = 17,
  kRecordBpfEvent = 18,
  kRecordCgroup = 19,
  kRecordTextPoke = 20,
  kRecordAuxOutputHwId = 21,
  kRecordCallchainDeferred = 22,
  kRecordUserStart = 64,
  kRecordHeaderAttr = 64,
  kRecordHeaderEventType = 65,
  kRecordHeaderTracingData = 66,
  kRecordHeaderBuildId = 67,
  kRecordFinishedRound = 68,
  kRecordIdIndex = 69,
  kRecordAuxtraceInfo = 70,
  kRecordAuxtrace = 71,
  kRecordAuxtraceError = 72,
  kRecordThreadMap = 73,
  kRecordCpuMap = 74,
  kRecordStatConfig = 75,
  kRecordStat = 76,
  kRecordStatRound = 77,
  kRecordEventUpdate = 78,
  kRecordTimeConv = 79,
  kRecordHeaderFeature = 80,
  kRecordCompressed = 81,
  kRecordFinishedInit = 82,
  kRecordCompressed2 = 83,
  kRecordBpfMetadata = 84,
  kRecordSchedstatCpu = 85,
  kRecordSchedstatDomain = 86,
};

/// perf_event_header.misc.
inline constexpr uint16_t kMiscCpumodeMask = 7;
inline constexpr uint16_t kMiscKernel = 1;
inline constexpr uint16_t kMiscUser = 2;
inline constexpr uint16_t kMiscGuestKernel = 4;
inline constexpr uint16_t kMiscGuestUser = 5;
inline constexpr uint16_t kMiscMmapData = 1U << 13;
inline constexpr uint16_t kMiscCommExec = 1U << 13;
inline constexpr uint16_t kMiscSwitchOut = 1U << 13;
inline constexpr uint16_t kMiscSwitchOutPreempt = 1U << 14;
inline constexpr uint16_t kMiscMmapBuildId = 1U << 14;
inline constexpr uint16_t kMiscBuildIdSize = 1U << 15;

/// perf_event_attr.sample_type.
inline constexpr uint64_t kSampleIp = 1U << 0;
inline constexpr uint64_t kSampleTid = 1U << 1;
inline constexpr uint64_t kSampleTime = 1U << 2;
inline constexpr uint64_t kSampleAddr = 1U << 3;
inline constexpr uint64_t kSampleRead = 1U << 4;
inline constexpr uint64_t kSampleCallchain = 1U << 5;
inline constexpr uint64_t kSampleId = 1U << 6;
inline constexpr uint64_t kSampleCpu = 1U << 7;
inline constexpr uint64_t kSamplePeriod = 1U << 8;
inline constexpr uint64_t kSampleStreamId = 1U << 9;
inline constexpr uint64_t kSampleRaw = 1U << 10;
inline constexpr uint64_t kSampleBranchStack = 1U << 11;
inline constexpr uint64_t kSampleRegsUser = 1U << 12;
inline constexpr uint64_t kSampleStackUser = 1U << 13;
inline constexpr uint64_t kSampleWeight = 1U << 14;
inline constexpr uint64_t kSampleDataSource = 1U << 15;
inline constexpr uint64_t kSampleIdentifier = 1U << 16;
inline constexpr uint64_t kSampleTransaction = 1U << 17;
inline constexpr uint64_t kSampleRegsIntr = 1U << 18;
inline constexpr uint64_t kSamplePhysAddr = 1U << 19;
inline constexpr uint64_t kSampleAux = 1U << 20;
inline constexpr uint64_t kSampleCgroup = 1U << 21;
inline constexpr uint64_t kSampleDataPageSize = 1U << 22;
inline constexpr uint64_t kSampleCodePageSize = 1U << 23;
inline constexpr uint64_t kSampleWeightStruct = 1U << 24;

/// perf_event_attr.branch_sample_type: what a branch stack holds besides its entries.
inline constexpr uint64_t kBranchHardwareIndex = 1U << 17;
inline constexpr uint64_t kBranchCounters = 1U << 19;

/// perf_event_attr.read_format.
inline constexpr uint64_t kFormatTimeEnabled = 1U << 0;
inline constexpr uint64_t kFormatTimeRunning = 1U << 1;
inline constexpr uint64_t kFormatId = 1U << 2;
inline constexpr uint64_t kFormatGroup = 1U << 3;
inline constexpr uint64_t kFormatLost = 1U << 4;

/// perf_event_attr's bit field word.
inline constexpr uint64_t kAttrInherit = 1ULL << 1;
inline constexpr uint64_t kAttrExcludeUser = 1ULL << 4;
inline constexpr uint64_t kAttrExcludeKernel = 1ULL << 5;
inline constexpr uint64_t kAttrExcludeHv = 1ULL << 6;
inline constexpr uint64_t kAttrFreq = 1ULL << 10;
inline constexpr uint64_t kAttrEnableOnExec = 1ULL << 12;
inline constexpr uint64_t kAttrPreciseIp = 3ULL << 15;
inline constexpr unsigned kAttrPreciseIpShift = 15;
inline constexpr uint64_t kAttrExcludeHost = 1ULL << 19;
inline constexpr uint64_t kAttrExcludeGuest = 1ULL << 20;
inline constexpr uint64_t kAttrSampleIdAll = 1ULL << 18;
inline constexpr uint64_t kAttrUseClockid = 1ULL << 25;
inline constexpr uint64_t kAttrContextSwitch = 1ULL << 26;

inline constexpr uint32_t kEventTypeTracepoint = 2;

/// Bits of the feature bitmap (tools/perf "util/header.h").
enum FeatureBit : uint32_t {
  kFeatureTracingData = 1,
  kFeatureBuildId = 2,
  kFeatureHostname = 3,
  kFeatureOsRelease = 4,
  kFeatureVersion = 5,
  kFeatureArch = 6,
  kFeatureNrCpus = 7,
  kFeatureCpuDesc = 8,
  kFeatureCpuid = 9,
  kFeatureTotalMem = 10,
  kFeatureCmdline = 11,
  kFeatureEventDesc = 12,
  kFeaturePmuMappings = 16,
  kFeatureAuxtrace = 18,
  kFeatureSampleTime = 21,
  kFeatureClockid = 23,
  kFeatureDirFormat = 24,
  kFeatureBpfProgInfo = 25,
  kFeatureBpfBtf = 26,
  kFeatureCompressed = 27,
  kFeatureClockData = 29,
  kFeatureBits = 256,
};

inline constexpr uint64_t kPerfMagic2 = 0x32454c4946524550ULL;         ///< "PERFILE2", little endian
inline constexpr uint64_t kPerfMagic2Swapped = 0x50455246494c4532ULL;  ///< the same from a machine of the other endianness
inline constexpr uint64_t kPerfMagic1 = 0x454c494646524550ULL;         ///< "PERFFILE", the form before 2009
inline constexpr uint64_t kFileHeaderBytes = 104;
inline constexpr uint64_t kPipeHeaderBytes = 16;
inline constexpr uint64_t kRecordHeaderBytes = 8;
inline constexpr uint64_t kAuxtraceRecordBytes = 48;

static_assert(std::endian::native == std::endian::little,
              "perf.data is read in the byte order of the machine; only little endian is built");

/// Reads little-endian fields sequentially; a read beyond the end returns 0 and makes ok() permanently false.
class Cursor {
 public:
  explicit Cursor(Bytes bytes) : bytes_(bytes) {}

  template <class T>
  T get() {
    T value{};
    if (!need(sizeof(T))) return value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }
  uint16_t u16() { return get<uint16_t>(); }
  uint32_t u32() { return get<uint32_t>(); }
  uint64_t u64() { return get<uint64_t>(); }
  int32_t i32() { return get<int32_t>(); }

  /// Returns the next `size_bytes` bytes; empty (and not ok) if there are fewer.
  Bytes take(uint64_t size_bytes) {
    if (!need(size_bytes)) return {};
    const Bytes taken = bytes_.subspan(position_, static_cast<size_t>(size_bytes));
    position_ += static_cast<size_t>(size_bytes);
    return taken;
  }
  void skip(uint64_t size_bytes) { (void)take(size_bytes); }
  /// Returns all remaining bytes.
  Bytes rest() { return take(remaining()); }
  /// Reads a NUL-terminated string that may also end with the bytes; consumes everything left.
  std::string text() { return text_of(rest()); }
  /// Reads a perf_header_string: u32 length, then that many bytes, padded with NULs.
  std::string header_string() { return text_of(take(u32())); }

  [[nodiscard]] uint64_t remaining() const { return bytes_.size() - position_; }
  [[nodiscard]] uint64_t position() const { return position_; }
  [[nodiscard]] bool ok() const { return ok_; }

  /// Returns the bytes up to the first NUL.
  static std::string text_of(Bytes bytes) {
    const auto* chars = reinterpret_cast<const char*>(bytes.data());
    return bytes.empty() ? std::string() : std::string(chars, strnlen(chars, bytes.size()));
  }

 private:
  bool need(uint64_t size_bytes) {
    if (!ok_ || size_bytes > bytes_.size() - position_) ok_ = false;
    return ok_;
  }

  Bytes bytes_;
  size_t position_ = 0;
  bool ok_ = true;
};

/// perf_event_header.
struct RecordHeader {
  uint32_t type = 0;
  uint16_t misc = 0;
  uint16_t size_bytes = 0;
};
inline RecordHeader read_record_header(Bytes bytes) {
  Cursor in(bytes);
  RecordHeader header;
  header.type = in.u32();
  header.misc = in.u16();
  header.size_bytes = in.u16();
  return header;
}

/// Returns whether no record of this type is known: a newer kernel or perf wrote it.
constexpr bool is_unknown_type(uint32_t type) {
  return type < kRecordMmap || (type > kRecordCallchainDeferred && type < kRecordUserStart) || type > kRecordSchedstatDomain;
}

constexpr bool is_guest(uint16_t misc) {
  return (misc & kMiscCpumodeMask) == kMiscGuestKernel || (misc & kMiscCpumodeMask) == kMiscGuestUser;
}

}  // namespace ptd::perfio

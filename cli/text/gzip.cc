// Gzip: see gzip.h.
#include "cli/text/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>

namespace ptd::cli {

namespace {

constexpr int kGzipFormat = 16, kWindowBits = 15, kMemoryLevel = 8;
constexpr size_t kPieceBytes = size_t{1} << 16;

}  // namespace

struct Gzip::Stream : z_stream {};

const char* version_of_zlib() { return zlibVersion(); }

Gzip::Gzip() : stream_(std::make_unique<Stream>()) {
  if (deflateInit2(stream_.get(), Z_DEFAULT_COMPRESSION, Z_DEFLATED, kWindowBits + kGzipFormat, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
}

Gzip::~Gzip() { deflateEnd(stream_.get()); }

void Gzip::write(std::string_view bytes, bool last, std::string& out) {
  do {
    const size_t taken = std::min<size_t>(bytes.size(), std::numeric_limits<uInt>::max());
    stream_->next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream_->avail_in = static_cast<uInt>(taken);
    bytes.remove_prefix(taken);
    const int flush = last && bytes.empty() ? Z_FINISH : Z_NO_FLUSH;
    do {
      const size_t at = out.size();
      out.resize(at + kPieceBytes);
      stream_->next_out = reinterpret_cast<Bytef*>(out.data() + at);
      stream_->avail_out = static_cast<uInt>(kPieceBytes);
      deflate(stream_.get(), flush);
      out.resize(at + kPieceBytes - stream_->avail_out);
    } while (stream_->avail_out == 0);
  } while (!bytes.empty());
}

}  // namespace ptd::cli

// Packed columns: base64 of a zlib stream of little-endian base 128 varints (profiler/report/page_data/packing.h).

function bytesOfBase64(text) { return Uint8Array.from(atob(text), (digit) => digit.charCodeAt(0)); }

async function inflateBytes(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Numbers one behind another; each is exact up to 2^53. */
class VarintReader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  next() {
    let value = 0;
    for (let scale = 1;; scale *= 128) {
      if (this.at >= this.bytes.length) throw new Error(`packed numbers end at byte ${this.bytes.length}, within a number`);
      const byte = this.bytes[this.at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  }

  /** `count` of them; each takes a byte at least, so a count that cannot be is found before memory is taken for it. */
  column(count) {
    if (count > this.bytes.length - this.at) throw new Error(`packed numbers end before ${count} more`);
    return Float64Array.from({length: count}, () => this.next());
  }
}

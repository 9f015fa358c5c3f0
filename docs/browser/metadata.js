// The class names in an ONNX file's metadata, which onnxruntime-web does not show. An ONNX file is a protobuf message: field 14 of
// the model (onnx.proto, ModelProto.metadata_props) is a message of a key (field 1) and a value (field 2) for each entry.
const METADATA = 14, KEY = 1, VALUE = 2;
const VARINT = 0, EIGHT_BYTES = 1, WITH_LENGTH = 2, FOUR_BYTES = 5;

function* fields(bytes) {
  let at = 0;
  const varint = () => {
    let value = 0, scale = 1, byte;
    do {
      if (at >= bytes.length) throw new Error("it is cut short");
      byte = bytes[at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte & 128);
    return value;
  };
  while (at < bytes.length) {
    const tag = varint(), kind = tag % 8, number = Math.floor(tag / 8);
    if (kind === VARINT) varint();
    else if (kind === EIGHT_BYTES) at += 8;
    else if (kind === FOUR_BYTES) at += 4;
    else if (kind === WITH_LENGTH) {
      const length = varint();
      yield [number, bytes.subarray(at, at + length)];
      at += length;
    } else throw new Error("it is not an ONNX file");
  }
}

export function metadata(bytes) {
  const text = new TextDecoder();
  const found = new Map();
  for (const [number, entry] of fields(bytes)) {
    if (number !== METADATA) continue;
    const parts = new Map(fields(entry));
    found.set(text.decode(parts.get(KEY) ?? new Uint8Array()), text.decode(parts.get(VALUE) ?? new Uint8Array()));
  }
  return found;
}

export function classNames(bytes) {
  return JSON.parse(metadata(bytes).get("class_names") ?? "[]");
}

import { type FileHandle, open, rename, stat } from 'node:fs/promises';

const bytesMax = 10 * 1024 * 1024;
const linesShown = 20;
const tailBytes = 8 * 1024;

/** The file that the server's messages go to; when it has grown beyond 10 MiB, a start keeps it as `….1`. */
export class ServerLog {
  readonly handle: FileHandle;
  readonly #file: string;
  #startBytes: number;

  private constructor(file: string, handle: FileHandle, sizeBytes: number) {
    this.#file = file;
    this.handle = handle;
    this.#startBytes = sizeBytes;
  }

  /** Opens the file for appending, as this process; the server inherits it open and needs no right to its folder. */
  static async open(file: string): Promise<ServerLog> {
    const size = await stat(file).then(
      (found) => found.size,
      () => 0,
    );
    if (size > bytesMax) await rename(file, `${file}.1`);
    return new ServerLog(file, await open(file, 'a', 0o600), size > bytesMax ? 0 : size);
  }

  /** From here on `tail` tells only what comes after this moment. */
  async mark(): Promise<void> {
    this.#startBytes = (await this.handle.stat()).size;
  }

  /** The last lines that were written since the mark. */
  async tail(): Promise<string> {
    const reader = await open(this.#file, 'r');
    try {
      const { size } = await reader.stat();
      const start = Math.max(this.#startBytes, size - tailBytes);
      const { buffer, bytesRead } = await reader.read({
        buffer: Buffer.alloc(size - start),
        position: start,
      });
      return buffer.toString('utf8', 0, bytesRead).trim().split('\n').slice(-linesShown).join('\n');
    } finally {
      await reader.close();
    }
  }
}

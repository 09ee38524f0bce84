import { readFile, readdir } from 'node:fs/promises';
import { extname, join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The built page; this file is at the same depth in `src` and in `dist`. */
const builtFolder = fileURLToPath(new URL('../dist/page', import.meta.url));

/** The media types of what the page consists of, by extension. */
const types: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** A file of the console. */
export interface ConsoleFile {
  /** Its media type. */
  readonly type: string;
  readonly body: Uint8Array<ArrayBuffer>;
}

/**
 * Reads the console's files into memory, about 150 kB: the option `console` of `operatorApp` of `@framework/operator/http` serves them.
 *
 * @param folder default: the page of this package
 * @returns the files by their path below the page, such as `index.html`
 * @throws the system's error when the package is not built
 */
export async function readConsole(folder: string = builtFolder): Promise<ReadonlyMap<string, ConsoleFile>> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries
    .filter((entry) => entry.isFile() && types[extname(entry.name)] !== undefined)
    .map(async (entry) => {
      const file = join(entry.parentPath, entry.name);
      const path = file.slice(folder.length + 1).replaceAll(sep, '/');
      return [
        path,
        { type: types[extname(file)] ?? '', body: new Uint8Array(await readFile(file)) },
      ] as const;
    });
  return new Map(await Promise.all(files));
}

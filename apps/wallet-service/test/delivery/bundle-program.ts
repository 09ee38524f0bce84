import { readFile, rename } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build } from 'esbuild';

/** Not among files that are watched or checked. */
const folder = fileURLToPath(new URL('../../node_modules/.cache/programs', import.meta.url));

/** The bundles of this process, which many test files share, by their programs. */
const bundles = new Map<string, Promise<string>>();

/**
 * The file in which a program and all its imports are bundled, so that a process starts in a tenth of the time. It is made once
 * by each process of tests, in the same place.
 */
export function bundledProgram(program: string): Promise<string> {
  const bundle = bundles.get(program) ?? bundleProgram(program);
  bundles.set(program, bundle);
  return bundle;
}

async function bundleProgram(program: string): Promise<string> {
  const file = join(folder, `${basename(program, '.ts')}.mjs`);
  const outfile = `${file}.${process.pid}`;
  await build({
    entryPoints: [program],
    outfile,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'es2022',
    keepNames: true,
    conditions: ['@framework/source'],
    // Needed only for a start without configuration.
    external: ['@framework/embedded-postgres', 'pg-native'],
    banner: {
      js: `import { createRequire as requireOf } from 'node:module'; const require = requireOf(import.meta.url);`,
    },
    plugins: [
      {
        name: 'addresses-of-sources',
        setup: (esbuild) => {
          // Migrations, pages, and the checksums of Kafka's client are looked up next to the sources.
          esbuild.onLoad({ filter: /\.ts$|[/\\]wasm-utils[/\\].*\.js$/ }, async ({ path }) => {
            const source = await readFile(path, 'utf8');
            const address = JSON.stringify(pathToFileURL(path).href);
            const loader = path.endsWith('.ts') ? 'ts' : 'js';
            return { loader, contents: source.replaceAll('import.meta.url', address) };
          });
        },
      },
    ],
  });
  // Another process may be starting from the same file.
  await rename(outfile, file);
  return file;
}

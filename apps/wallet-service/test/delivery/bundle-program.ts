import { rmSync } from 'node:fs';
import { mkdtemp, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build } from 'esbuild';

/** The bundles of this process, which many test files share, by their programs. */
const bundles = new Map<string, Promise<string>>();

/**
 * The file in which a program and all its imports are bundled, so that a process starts in a tenth of the time. It is made once, and
 * removed when this process ends.
 */
export function bundledProgram(program: string): Promise<string> {
  const bundle = bundles.get(program) ?? bundleProgram(program);
  bundles.set(program, bundle);
  return bundle;
}

async function bundleProgram(program: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'wallet-program-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  const outfile = join(folder, 'main.mjs');
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
  return outfile;
}

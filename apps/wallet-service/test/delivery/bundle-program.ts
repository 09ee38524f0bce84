import { mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import { vi } from 'vitest';

const programs = {
  main: new URL('../../src/main.ts', import.meta.url),
  recording: new URL('./recording-worker.ts', import.meta.url),
  impatient: new URL('./impatient-service.ts', import.meta.url),
  soak: new URL('./soak-worker.ts', import.meta.url),
} as const;

export type ProgramName = keyof typeof programs;

/** Not among files that are watched or checked. */
const cache = fileURLToPath(new URL('../../node_modules/.cache/programs', import.meta.url));
/** The folder of this run, whose test files run in several processes. */
const folder = join(cache, `${process.ppid}`);
const isBundled = join(folder, 'done');
const bundleTimeoutMs = 60_000;

/**
 * The file in which a program and all its imports are bundled, so that a process starts in a tenth of the time. The first process of
 * a run that needs it bundles all programs together.
 */
export async function bundledProgram(name: ProgramName): Promise<string> {
  await mkdir(cache, { recursive: true });
  const isFirst = await mkdir(folder).then(
    () => true,
    () => false,
  );
  if (isFirst) await bundlePrograms();
  await vi.waitFor(() => readFile(isBundled), { timeout: bundleTimeoutMs });
  return join(folder, `${basename(programs[name].pathname, '.ts')}.mjs`);
}

async function bundlePrograms(): Promise<void> {
  for (const run of await readdir(cache))
    if (!isAlive(Number(run))) await rm(join(cache, run), { recursive: true, force: true });
  await build({
    entryPoints: Object.values(programs).map((url) => fileURLToPath(url)),
    outdir: folder,
    outExtension: { '.js': '.mjs' },
    entryNames: '[name]',
    splitting: true,
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
  await writeFile(isBundled, '');
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

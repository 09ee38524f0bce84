import { globSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { basename, dirname } from 'node:path';

import { transform } from 'esbuild';
import { defineConfig, type Plugin } from 'vitest/config';

/** Compiles standard decorators, which vitest's own compiler does not. */
const standardDecorators: Plugin = {
  name: 'standard-decorators',
  enforce: 'pre',
  async transform(code, id) {
    const [sourcefile = id] = id.split('?');
    if (!/\.[cm]?tsx?$/.test(sourcefile) || !/^\s*@[A-Za-z_$]/m.test(code)) return undefined;
    const compiled = await transform(code, { loader: 'ts', target: 'es2022', sourcemap: true, sourcefile });
    return { code: compiled.code, map: compiled.map };
  },
};

// Workspace packages are read from their sources, so that tests need no build and stack traces show the sources.
const conditions = ['@framework/source', 'module', 'node', 'development|production'];

/** The same for the global setup, which vitest runs in a separate environment. */
const sourcesEverywhere: Plugin = {
  name: 'sources-everywhere',
  configEnvironment: () => ({ resolve: { conditions } }),
};

/**
 * The name of a test file decides its gate: `npm test` runs `*.test.ts`, `.ci/run` also `*.ci.test.ts` (brokers, a browser, packed
 * packages), and `npm run test:long` `*.long.test.ts` (kills, outages, drills).
 */
const otherGates = '**/*.{ci,long}.test.ts';
/** Tests that count what a process has registered, or replace modules: each gets a process of its own. */
const inOwnProcess = [
  'packages/core/src/action/framework-action.test.ts',
  'packages/core/src/errors/framework-error.test.ts',
  'packages/core/test/supported-node.test.ts',
  'packages/events/test/handlers.test.ts',
  'packages/http/src/openapi/docs-page.test.ts',
  'apps/wallet-service/test/{discovered-actions,logs,telemetry,third-shard}.test.ts',
];

/** The files of {@link inOwnProcess} in a package or application, relative to its folder. */
const isolatedIn = (root: string): string[] =>
  inOwnProcess.filter((file) => file.startsWith(`${root}/`)).map((file) => file.slice(root.length + 1));

// The leftover folder of a member that was moved has no manifest.
const members = globSync('{packages,apps}/*/package.json', { cwd: import.meta.dirname }).map(dirname);
const projects = members.map((root) => ({
  extends: true as const,
  test: {
    name: basename(root),
    root,
    include: ['{src,test}/**/*.test.ts'],
    exclude: [otherGates, ...isolatedIn(root)],
  },
}));
const isolatedProjects = members
  .filter((root) => isolatedIn(root).length > 0)
  .map((root) => ({
    extends: true as const,
    test: { name: `${basename(root)}-isolated`, root, include: isolatedIn(root), isolate: true },
  }));

/** The tests that run once more over TLS: those of client connections. */
const overTls = [
  ['packages/http', 'src/server/http-server.test.ts'],
  ['apps/wallet-service', 'test/{connections,refused-connections}.test.ts'],
].map(([root = '', include = '']) => ({
  extends: true as const,
  test: { name: `${basename(root)}-tls`, root, include: [include], provide: { tls: true } },
}));

/** The rules of the project. */
const house = {
  extends: true as const,
  test: { name: 'house', root: 'instruments', include: ['*.test.ts'] },
};

/** Programs of one file each, with their output. */
const examples = {
  extends: true as const,
  test: { name: 'examples', root: 'examples', include: ['*.test.ts'] },
};

/** Brokers and a browser, which `.ci/run` installs. */
const ci = {
  extends: true as const,
  test: { name: 'ci', include: ['{packages,apps}/*/{src,test}/**/*.ci.test.ts'] },
};

/** The commands of the README, and the packed packages in a consumer's hands: one file after the other. */
const e2e = {
  extends: true as const,
  test: {
    name: 'e2e',
    root: 'e2e',
    include: ['*.ci.test.ts'],
    maxWorkers: 1,
    testTimeout: 900_000,
    hookTimeout: 900_000,
  },
};

/** Kills, outages and drills, one file after the other, because each measures how long something takes. */
const long = {
  extends: true as const,
  test: { name: 'long', include: ['{packages,apps}/*/{src,test}/**/*.long.test.ts'], maxWorkers: 1 },
};

export default defineConfig({
  plugins: [standardDecorators, sourcesEverywhere],
  resolve: { conditions },
  ssr: { resolve: { conditions, externalConditions: conditions } },
  test: {
    tags: [
      { name: 'slow', description: 'Takes more than a few seconds, or starts other processes' },
      {
        name: 'postgres',
        description: 'Depends on the version of PostgreSQL: runs on the oldest one as well',
      },
    ],
    globalSetup: ['packages/testing/src/postgres/vitest-global-setup.ts'],
    // More than cores, because most tests wait for a database, a timeout or another process.
    maxWorkers: Math.ceil(availableParallelism() * 1.5),
    // Files share their processes and the modules these have imported: importing them for each file doubles the time.
    isolate: false,
    restoreMocks: true,
    unstubEnvs: true,
    unstubGlobals: true,
    // A test that passes on the second try is reported by its name, and fails the run.
    retry: 1,
    // Deadlines cost nothing when they are met: they exist for conditions that never come true, however busy the machine is. Such a
    // condition is reported before its test times out.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 30_000, interval: 20 } },
    provide: { groupCommit: process.env['GROUP_COMMIT'] === 'on', tls: false },
    projects: [...projects, ...isolatedProjects, ...overTls, house, examples, ci, e2e, long],
  },
});

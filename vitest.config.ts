import { globSync } from 'node:fs';
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

/** Tests that are valid only with group commit; some of them show that it is on. */
const onlyGrouped = 'test/**/*.grouped.test.ts';

/** The tests that kill processes and servers take minutes: CI leaves them out where it runs the others a second time. */
const faults =
  process.env['FAULT_TESTS'] === 'off' ? ['test/{delivery,fault-drill,faults,relay}/*.test.ts'] : [];

/** Tests of what is discovered in a process, and those that replace modules: they must share theirs with no other file. */
const inOwnProcess = [
  'packages/core/src/action/framework-action.test.ts',
  'packages/core/src/errors/framework-error.test.ts',
  'packages/core/test/supported-node.test.ts',
  'packages/events/test/handlers.test.ts',
  'apps/wallet-service/src/http/docs-routes.test.ts',
  'apps/wallet-service/test/{discovered-actions,logs,telemetry,third-shard}.test.ts',
];
const isolated = {
  extends: true as const,
  test: { name: 'isolated', include: inOwnProcess, isolate: true },
};
/** Those of a package or an application, as its own project sees them. */
const isolatedIn = (root: string): string[] =>
  inOwnProcess.filter((file) => file.startsWith(`${root}/`)).map((file) => file.slice(root.length + 1));

// The leftover folder of a member that was moved has no manifest.
const projects = globSync('{packages,apps}/*/package.json', { cwd: import.meta.dirname })
  .map(dirname)
  .map((root) => ({
    extends: true as const,
    test: {
      name: basename(root),
      root,
      include: ['{src,test}/**/*.test.ts'],
      exclude: [onlyGrouped, ...isolatedIn(root), ...faults],
    },
  }));

/**
 * The tests that run once more, with group commit: those that execute actions, where it could make a difference.
 *
 * None of `core`, whose tests choose the way of committing themselves, and none of `events` and of the adapter's delivery, whose
 * tests write their events by hand: the log is the same for them.
 */
const grouped: Readonly<Record<string, { readonly include: string[]; readonly exclude?: string[] }>> = {
  'packages/testing': {
    include: ['test/memory/memory-delivery.test.ts', 'test/specification/*.test.ts'],
  },
  'packages/drizzle-adapter': {
    include: [
      'test/{broken-connections,commit-outcome,connections,idempotency-faults,random-plans,secrets}.test.ts',
      // A lone action sends the same statements as without group commit.
      'test/statements.test.ts',
      'test/{sharding-strategies,silent-network,startup}.test.ts',
    ],
  },
  'apps/wallet-service': {
    include: [
      'src/{notification/*,wallet/wallet-actions}.test.ts',
      'src/transfer/{refund-transfer,settle-transfer,transfer-actions,transfer-handlers,transfer-saga}.test.ts',
      'test/**/*.test.ts',
    ],
    exclude: [
      // What is read from files, what is refused or answered without any action, and what pages show.
      'test/{asyncapi,configuration,crossed-files,documents,openapi,pages,request-shape,service-logger,shard-databases}.test.ts',
      'test/fault-drill/*.test.ts',
      // What a browser shows, however events were written.
      'test/console/*.test.ts',
      // Once is enough, in processes of their own.
      ...isolatedIn('apps/wallet-service'),
      // Who is refused, before anything is committed.
      'test/security/*.test.ts',
      // How client connections are handled, and how a process starts and stops, whatever its requests wait for.
      'test/{connections,embedded-process,limits,refused-connections,secrets,service-process,shared-rates,tls}.test.ts',
      // Where handlers run, and what happens to their leases and to events that fail: they read the same log, however the events
      // were written. The tests that kill processes which deliver transfers, and those of the outcomes of their steps, are in
      // both.
      'test/delivery/{handler-starts,hanging-handlers,poison-events,roles,worker-kills}.test.ts',
      // What brokers get, and when they do.
      'test/{relay,relay/*}.test.ts',
      // Each seed decides itself whether it commits in groups.
      'test/simulation/*.test.ts',
      // It commits in groups in both.
      'test/metrics.test.ts',
      // What operators read.
      'test/{on-call,operator,operator-application}.test.ts',
      // Databases that are away or read only, and processes that lack one. What happens to commits in a group when the network
      // fails is in `lost-groups`, and what happens when a database is killed, in `killed-database`, is in both.
      'test/faults/{long-outage,missing-shard,read-only-server,shard-away}.test.ts',
      // The choice of the server, which does not depend on how plans are committed.
      'test/faults/promoted-standby.test.ts',
    ],
  },
};

const groupedProjects = Object.entries(grouped).map(([root, { include, exclude = [] }]) => ({
  extends: true as const,
  test: {
    name: `${basename(root)}-grouped`,
    root,
    include: [...include, onlyGrouped],
    exclude,
    provide: { groupCommit: true },
  },
}));

/** The tests that run once more over TLS: those of client connections. */
const overTls = {
  extends: true as const,
  test: {
    name: 'wallet-service-tls',
    root: 'apps/wallet-service',
    include: ['src/http/http-server.test.ts', 'test/{connections,refused-connections}.test.ts'],
    provide: { tls: true },
  },
};

/** The commands of the README, and what a consumer gets: in separate processes, one file after the other. */
const e2e = {
  extends: true as const,
  test: {
    name: 'e2e',
    root: 'e2e',
    include: ['*.test.ts'],
    maxWorkers: 1,
    testTimeout: 900_000,
    hookTimeout: 900_000,
  },
};

/** Limits on what must not grow again. */
const house = {
  extends: true as const,
  test: { name: 'house', root: 'instruments', include: ['*.test.ts'] },
};

/** Programs of one file each, with what they print. */
const examples = {
  extends: true as const,
  test: { name: 'examples', root: 'examples', include: ['*.test.ts'] },
};

export default defineConfig({
  plugins: [standardDecorators, sourcesEverywhere],
  resolve: { conditions },
  ssr: { resolve: { conditions, externalConditions: conditions } },
  test: {
    tags: [{ name: 'slow', description: 'Takes more than a few seconds, or starts other processes' }],
    globalSetup: ['packages/testing/src/postgres/vitest-global-setup.ts'],
    // Most tests wait for a database or for other processes.
    maxWorkers: '100%',
    // Files share their processes, and what these have imported: to import it for each of hundreds of files took half of the time.
    isolate: false,
    restoreMocks: true,
    unstubEnvs: true,
    unstubGlobals: true,
    // Deadlines cost nothing when they are met: they exist for conditions that never come true, however busy the machine is. Such a
    // condition is reported before its test times out.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 30_000, interval: 20 } },
    provide: { groupCommit: false, tls: false },
    projects: [...projects, ...groupedProjects, overTls, isolated, e2e, house, examples],
  },
});

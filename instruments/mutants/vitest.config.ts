import { basename } from 'node:path';

import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

import base from '../../vitest.config.js';

interface Suite {
  readonly include: readonly string[];
  /** How long a test waits for something that its mutant never does. */
  readonly testTimeout: number;
}

/** The tests that run against mutants, by member: those that need no database, no other process and no built package. */
const suites: Readonly<Record<string, Suite>> = {
  'packages/core': { include: ['{src,test}/**/*.test.ts'], testTimeout: 2_000 },
  // Some of these tests run simulations, or a whole delivery until it comes to rest.
  'packages/events': { include: ['{src,test}/**/*.test.ts'], testTimeout: 15_000 },
  'packages/drizzle-adapter': { include: ['src/**/*.test.ts'], testTimeout: 2_000 },
  'packages/logical-replication': { include: ['src/**/*.test.ts'], testTimeout: 2_000 },
  'apps/wallet-service': {
    include: ['src/{notification,transfer,wallet}/**/*.test.ts'],
    testTimeout: 15_000,
  },
};

/**
 * The tests against PostgreSQL that also run against the mutants of a folder: quick ones, which start no other process. Tests
 * tagged `slow` are not run.
 */
const databaseTests: Readonly<Record<string, readonly string[]>> = {
  'packages/drizzle-adapter/src/connection': ['bind-errors', 'commit-outcome', 'read-only', 'refused-begin'],
  'packages/drizzle-adapter/src/delivery': [
    'conformance',
    'dead-letters',
    'delivery-{bulk,leases,reads,retention}',
    'replaced-database',
  ],
  'packages/drizzle-adapter/src/write': [
    'conformance',
    'exact-values',
    'grouped-commit',
    'left-out-additions',
    'merged-rows',
    'row-shapes',
    'statements',
  ],
};

/** How long such a test may take while other runners are busy. */
const databaseTimeoutMs = 20_000;

const sources = process.env['MUTANTS_SOURCES']?.split(',') ?? [];

function isMutated(folder: string): boolean {
  return sources.some((source) => source.startsWith(`${folder}/`));
}

const projects = Object.entries(suites)
  .filter(([root]) => isMutated(root))
  .map(([root, { include, testTimeout }]) => ({
    extends: true as const,
    test: { name: basename(root), root, include: [...include], testTimeout, hookTimeout: testTimeout },
  }));

const databaseProjects = Object.entries(databaseTests)
  .filter(([folder]) => isMutated(folder))
  .map(([folder, names]) => ({
    extends: true as const,
    test: {
      name: `${basename(folder)} in PostgreSQL`,
      root: folder.split('/').slice(0, 2).join('/'),
      include: names.map((name) => `test/${name}.test.ts`),
      testTimeout: databaseTimeoutMs,
      hookTimeout: databaseTimeoutMs,
    },
  }));

/**
 * Begins with the tests named after the mutated source, then those beside it: most mutants are killed there, and the other files
 * are not run.
 */
class NearestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const [mutated] = this.ctx.config.related ?? [];
    if (mutated === undefined) return super.sort(files);
    const name = basename(mutated, '.ts');
    const nearness = ({ moduleId }: TestSpecification) =>
      basename(moduleId, '.test.ts') === name ? moduleId.length : prefixLength(moduleId, mutated);
    return [...files].sort((one, other) => nearness(other) - nearness(one));
  }
}

function prefixLength(one: string, other: string): number {
  let length = 0;
  while (length < one.length && one[length] === other[length]) length++;
  return length;
}

const { globalSetup, projects: _, ...test } = base.test ?? {};

export default defineConfig({
  ...base,
  test: {
    ...test,
    // Tests of what is discovered in a process must share theirs with no other file.
    isolate: true,
    ...(databaseProjects.length > 0 && { globalSetup }),
    expect: { poll: { timeout: 1_000, interval: 20 } },
    sequence: { sequencer: NearestFirst },
    // @ts-expect-error -- its type allows it only on the command line
    tagsFilter: ['!slow'],
    projects: [...projects, ...databaseProjects],
  },
});

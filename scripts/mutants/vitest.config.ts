import { basename } from 'node:path';

import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

import base from '../../vitest.config.js';

interface Suite {
  readonly include: readonly string[];
  /** After which time a test waits for what its mutant never does. */
  readonly testTimeout: number;
}

/** The tests that mutants meet, by their member: those that need no database, no other process and no built package. */
const suites: Readonly<Record<string, Suite>> = {
  'packages/core': { include: ['{src,test}/**/*.test.ts'], testTimeout: 2_000 },
  // Some of them run simulations.
  'packages/events': { include: ['{src,test}/**/*.test.ts'], testTimeout: 15_000 },
  'packages/drizzle-adapter': { include: ['src/**/*.test.ts'], testTimeout: 2_000 },
  'apps/wallet-service': {
    include: ['src/{actions,handlers,transfer,wallet}/**/*.test.ts'],
    testTimeout: 2_000,
  },
};

/** Begins with the tests beside the source that has the mutant: most mutants end there, and the other files are not run. */
class NearestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const [mutated] = this.ctx.config.related ?? [];
    if (mutated === undefined) return super.sort(files);
    const nearness = ({ moduleId }: TestSpecification) => prefixLength(moduleId, mutated);
    return [...files].sort((one, other) => nearness(other) - nearness(one));
  }
}

function prefixLength(one: string, other: string): number {
  let length = 0;
  while (length < one.length && one[length] === other[length]) length++;
  return length;
}

const { globalSetup: _, projects: __, ...test } = base.test ?? {};

export default defineConfig({
  ...base,
  test: {
    ...test,
    expect: { poll: { timeout: 1_000, interval: 20 } },
    sequence: { sequencer: NearestFirst },
    projects: Object.entries(suites)
      .filter(([root]) => process.env['MUTANTS_MEMBERS']?.split(',').includes(root))
      .map(([root, { include, testTimeout }]) => ({
        extends: true as const,
        test: { name: basename(root), root, include: [...include], testTimeout, hookTimeout: testTimeout },
      })),
  },
});

import { readdirSync } from 'node:fs';

import { defineConfig } from 'vitest/config';

import { standardDecorators } from './scripts/vitest-decorators.mjs';

// Workspace packages are read from their sources, so that tests need no build and stack traces show the sources.
const conditions = ['@framework/source', 'module', 'node', 'development|production'];

const projects = ['packages', 'apps'].flatMap((folder) =>
  readdirSync(new URL(folder, import.meta.url), { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => ({
      extends: true as const,
      test: { name: entry.name, root: `${folder}/${entry.name}` },
    })),
);

export default defineConfig({
  plugins: [standardDecorators()],
  resolve: { conditions },
  ssr: { resolve: { conditions, externalConditions: conditions } },
  test: {
    include: ['{src,test}/**/*.test.ts'],
    globalSetup: ['packages/testing/src/postgres/vitest-global-setup.ts'],
    // Most tests wait for a database or for other processes.
    maxWorkers: '100%',
    testTimeout: 20_000,
    hookTimeout: 60_000,
    projects,
  },
});

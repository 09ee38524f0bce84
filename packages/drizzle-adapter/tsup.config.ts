import { fileURLToPath } from 'node:url';
import { defineConfig } from 'tsup';
import { packageBuild } from '../../tsup.base.js';
import { readMigrations } from './src/migration/migration-folder.js';

const migrations = readMigrations(fileURLToPath(new URL('migrations', import.meta.url)));

export default defineConfig({
  ...packageBuild,
  entry: ['src/index.ts', 'src/log.ts', 'src/operation.ts'],
  define: { builtInMigrations: JSON.stringify(migrations) },
});

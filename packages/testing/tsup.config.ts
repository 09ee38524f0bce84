import { defineConfig } from 'tsup';
import { packageBuild } from '../../tsup.base.js';

export default defineConfig({
  ...packageBuild,
  entry: {
    index: 'src/index.ts',
    'memory/index': 'src/memory/index.ts',
    'postgres/index': 'src/postgres/index.ts',
    'record/index': 'src/record/index.ts',
    'simulation/index': 'src/simulation/index.ts',
    'specification/index': 'src/specification/index.ts',
  },
});

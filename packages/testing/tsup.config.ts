import { defineConfig } from 'tsup';

// Declarations come from tsc: TypeScript 7 has no JavaScript API that tsup could call.
export default defineConfig({
  entry: {
    index: 'src/index.ts',
    'conformance/index': 'src/conformance/index.ts',
    'memory/index': 'src/memory/index.ts',
    'postgres/index': 'src/postgres/index.ts',
    'specification/index': 'src/specification/index.ts',
  },
  format: 'esm',
  target: 'es2022',
  platform: 'node',
  sourcemap: true,
});

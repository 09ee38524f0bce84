import { defineConfig } from 'tsup';

// Declarations come from tsc: TypeScript 7 has no JavaScript API that tsup could call.
export default defineConfig({
  entry: ['src/index.ts'],
  format: 'esm',
  target: 'es2022',
  platform: 'node',
  sourcemap: true,
});

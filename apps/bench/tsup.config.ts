import { defineConfig } from 'tsup';

export default defineConfig({
  entry: ['src/main.ts', 'src/processes/*.ts'],
  format: 'esm',
  target: 'es2022',
  platform: 'node',
  sourcemap: true,
  keepNames: true,
});

import { defineConfig } from 'tsup';

export default defineConfig({
  entry: ['src/main.ts', 'src/index.ts'],
  format: 'esm',
  target: 'es2022',
  platform: 'node',
  sourcemap: true,
  // Names of classes are the names of actions and events in the log.
  keepNames: true,
});

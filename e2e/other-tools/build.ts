import { build } from 'esbuild';

await build({
  entryPoints: ['counter/main.ts'],
  outfile: 'dist/main.mjs',
  bundle: true,
  platform: 'node',
  format: 'esm',
  minify: true,
  keepNames: true,
  banner: {
    js: `import { createRequire as requireOf } from 'node:module'; const require = requireOf(import.meta.url);`,
  },
});

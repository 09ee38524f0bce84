import { defineConfig } from 'vite';

/** The page, for browsers of the last two years. Its addresses are relative: it may lie behind any prefix. */
export default defineConfig({
  root: `${import.meta.dirname}/src/page`,
  base: './',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    outDir: `${import.meta.dirname}/dist/page`,
    emptyOutDir: true,
    target: 'es2023',
    // Nothing may be inline: the page's policy forbids it.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
});

import { transform } from 'esbuild';

const typescript = /\.[cm]?tsx?$/;
const decorator = /^\s*@[A-Za-z_$]/m;

/** A vite plugin that compiles standard decorators, which vitest's own compiler leaves as they are. */
export function standardDecorators() {
  return {
    name: 'standard-decorators',
    enforce: 'pre',
    async transform(code, id) {
      const [file] = id.split('?');
      if (!typescript.test(file) || !decorator.test(code)) return undefined;
      const result = await transform(code, {
        loader: 'ts',
        target: 'es2022',
        sourcemap: true,
        sourcefile: file,
      });
      return { code: result.code, map: result.map };
    },
  };
}

import { defineConfig } from 'tsup';
import { packageBuild } from '../../tsup.base.js';

export default defineConfig({
  ...packageBuild,
  entry: [
    'src/index.ts',
    'src/hono.ts',
    'src/fastify.ts',
    'src/nest.ts',
    'src/server/index.ts',
    'src/security/index.ts',
  ],
});

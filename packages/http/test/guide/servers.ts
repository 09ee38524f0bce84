/* oxlint-disable typescript/no-extraneous-class -- a module of NestJS is a class */
import { serve } from '@hono/node-server';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import Fastify, { type FastifyInstance } from 'fastify';
import { Hono } from 'hono';
import { logger } from 'hono/logger';

import { httpPlugin } from '../../src/fastify.js';
import { type HonoEnv, honoApp } from '../../src/hono.js';
import type { HttpApi } from '../../src/index.js';
import { HttpApiModule, ProblemFilter } from '../../src/nest.js';

export function serveWithHono(api: HttpApi, port: number) {
  const app = new Hono<HonoEnv>();
  app.use(logger());
  return serve({ fetch: honoApp(api, { app }).fetch, port });
}

export async function serveWithFastify(api: HttpApi, port: number): Promise<FastifyInstance> {
  const app = Fastify({ trustProxy: '10.0.0.0/8' });
  await app.register(httpPlugin(api));
  await app.listen({ port });
  return app;
}

export async function serveWithNest(api: HttpApi, port: number) {
  @Module({ imports: [HttpApiModule.forRoot(api)] })
  class AppModule {}

  const app = await NestFactory.create(AppModule, { bodyParser: false, logger: ['error', 'warn'] });
  app.useGlobalFilters(new ProblemFilter(api));
  await app.listen(port);
  return app;
}

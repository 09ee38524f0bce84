import { describe, expect, test } from 'vitest';
import { parseDatabaseUrl } from './database-url.js';

describe('parseDatabaseUrl', () => {
  test.each([
    ['jdbc:postgresql://127.0.0.1:5432/global', 'postgresql://127.0.0.1:5432/global'],
    ['postgresql://db-1/global', 'postgresql://db-1/global'],
    ['postgres://db-1:5432/global', 'postgres://db-1:5432/global'],
    ['jdbc:postgresql://db-1/global?sslmode=require', 'postgresql://db-1/global?sslmode=require'],
    ['postgresql:///global?host=/run', 'postgresql:///global?host=%2Frun'],
    ['jdbc:mysql://db-1:3306/global', 'mysql://db-1:3306/global'],
  ])('reads %s', (text, address) => {
    expect(parseDatabaseUrl(text)).toEqual({ address, username: undefined, password: undefined });
  });

  test.each([
    ['postgres://ann:s3cret@db-1/global', 's3cret'],
    ['jdbc:postgresql://ann:p%40ss%2Fword@db-1/global', 'p@ss/word'],
    ['jdbc:postgresql://ann:100%25@db-1/global', '100%'],
    ['jdbc:postgresql://ann:100%@db-1/global', '100%'],
    ['jdbc:postgresql://db-1/global?user=ann&password=s3cret', 's3cret'],
    ['jdbc:postgresql://db-1/global?password=s3cret&user=ann&sslmode=require', 's3cret'],
  ])('takes the credentials out of %s', (text, password) => {
    const url = parseDatabaseUrl(text);
    expect(url?.username).toBe('ann');
    expect(url?.password?.reveal()).toBe(password);
    expect(url?.address).not.toMatch(/ann|s3cret|pass|100/);
  });

  test.each([
    '',
    'global',
    'db-1:5432/global',
    'postgresql://db-1',
    'postgresql://db-1/',
    'postgresql://db-1:port/global',
    'jdbc:postgresql:global',
    'jdbc:postgresql://db-1:5432,db-2:5432/global',
    // a slash is missing, or something in the password is not escaped: it would count as the path
    'postgres:ann:s3cret@db-1/global',
    'postgres://ann:12/s3cret@db-1/global',
    'postgres://ann:12/s3cret@db-1',
    'postgres://ann:s3#cret@db-1/global',
    'postgres://ann:12?s3cret@db-1/global',
  ])('does not take %j for a database URL', (text) => {
    expect(parseDatabaseUrl(text)).toBeUndefined();
  });
});

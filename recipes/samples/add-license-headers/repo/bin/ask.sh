#!/bin/sh
echo "2 + 3"
